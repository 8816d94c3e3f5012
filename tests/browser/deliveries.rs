//! A delivery whose parcels are its children.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::chromium::LIMIT;
use crate::site::Site;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    parcels: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Arrive;

#[verb]
async fn loaded(ctx: &mut Ctx<'_>, event: Load) -> Result {
    let delivery = ctx.key().to_owned();
    ctx.start_children::<Parcel>((1..=event.parcels).map(|n| (format!("{delivery}/parcel-{n:03}"), Pack)))?;
    Ok(())
}
#[verb]
async fn unloaded(_all: ChildrenEnded) -> Result {
    Ok(())
}
#[verb]
async fn packed(_event: Pack) -> Result {
    Ok(())
}
#[verb]
async fn arrived(_event: Arrive) -> Result {
    Ok(())
}

fsm! {
    /// A delivery, until all of its parcels have arrived.
    pub machine Delivery = "delivery" {
        start loaded;
        loaded -> unloaded;
        end unloaded;
    }
}
fsm! {
    /// A parcel of a delivery.
    pub machine Parcel = "parcel" {
        start packed;
        packed -> arrived;
        end arrived;
    }
}

/// A delivery of 120 parcels: two have arrived, and one was cancelled.
pub async fn deliveries(site: &Site) {
    let (deliveries, parcels) = (site.runtime.machine::<Delivery>(), site.runtime.machine::<Parcel>());
    deliveries.send("delivery-1", Load { parcels: 120 }).await.expect("the event is accepted");
    deliveries.settled("delivery-1").within(LIMIT).await.expect("it comes to rest");
    for number in 1..=120 {
        parcels.settled(format!("delivery-1/parcel-{number:03}")).within(LIMIT).await.expect("it comes to rest");
    }
    for key in ["delivery-1/parcel-001", "delivery-1/parcel-002"] {
        parcels.send(key, Arrive).await.expect("the event is accepted");
        parcels.settled(key).within(LIMIT).await.expect("it ends");
    }
    parcels.cancel("delivery-1/parcel-003", "it fell from the van").await.expect("it is cancelled");
}

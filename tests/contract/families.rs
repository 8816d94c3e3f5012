//! Child instances, and the events that tell their parent of their ends.

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship {
    pub parcels: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack {
    pub weight_grams: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deliver;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Parcels {
    ended: Vec<String>,
    all: u64,
}

#[verb]
async fn shipping(ctx: &mut Ctx<'_>, event: Ship) -> Result {
    let order = ctx.key().to_owned();
    ctx.child::<Parcel>(format!("{order}/parcel-1"), Pack { weight_grams: 200 })?;
    ctx.start_children::<Parcel>((2..=event.parcels).map(|n| (format!("{order}/parcel-{n}"), Pack { weight_grams: 100 * n })))?;
    ctx.child::<Parcel>(format!("{order}/gift"), Pack { weight_grams: 1 })?.detached();
    Ok(())
}
#[verb]
async fn reordered(parcels: &mut Parcels, child: ChildEnded<Parcel>) -> Result {
    parcels.ended.push(child.key);
    Ok(())
}
#[verb]
async fn alarmed(_child: ChildFailed<Parcel>) -> Result {
    Ok(())
}
#[verb]
async fn delivered(ctx: &mut Ctx<'_>, parcels: &mut Parcels, all: ChildrenEnded) -> Result {
    let listed = ctx.children::<Parcel>().await?;
    assert_eq!(listed.items.len() as u64, all.count());
    parcels.all = all.in_state(ParcelState::Handed);
    Ok(())
}
#[verb]
async fn packed(_event: Pack) -> Result {
    Ok(())
}
#[verb]
async fn handed(_event: Deliver) -> Result {
    Ok(())
}

fsm! {
    pub machine Order = "contract-order" {
        keeps Parcels;
        start shipping;
        shipping stays on reordered | alarmed;
        shipping -> delivered;
        end delivered;
    }
}
fsm! {
    pub machine Parcel = "contract-parcel" {
        start packed;
        packed -> handed;
        end handed;
    }
}

async fn families(bed: TestBed) {
    let (orders, parcels) = (bed.machine::<Order>(), bed.machine::<Parcel>());
    orders.send("o-7", Ship { parcels: 3 }).await.unwrap();
    bed.run_until_idle().await;
    for key in ["parcel-1", "parcel-2", "parcel-3", "gift"] {
        parcels.send(format!("o-7/{key}"), Deliver).await.unwrap();
    }
    bed.run_until_idle().await;
    let order = orders.get("o-7").await.unwrap().unwrap();
    assert_eq!((order.status, order.record.all, order.record.ended.len()), (Status::Completed, 4, 4));
}

#[tokio::test]
async fn families_on_sqlite() {
    families(TestBed::builder().only::<Order>().only::<Parcel>().sqlite().await).await;
}

#[tokio::test]
async fn families_on_postgres() {
    families(TestBed::builder().only::<Order>().only::<Parcel>().postgres().await).await;
}

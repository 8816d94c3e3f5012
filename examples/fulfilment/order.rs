//! An order with its parcels. The parcels are children of the order, so that it gets one event when the last of them has ended.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::carrier::Carrier;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship {
    pub parcels: u32,
    /// The parcels of this customer are handed to the carrier before those of others.
    pub is_vip: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refund {
    pub parcels: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Close;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack;
/// The carrier delivered the parcel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivered;
/// The carrier lost the parcel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lost;

/// The data of an order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parcels {
    pub delivered: u64,
    pub lost: u64,
}

#[verb]
async fn shipping(ctx: &mut Ctx<'_>, event: Ship) -> Result {
    let order = ctx.key().to_owned();
    let priority = if event.is_vip { Priority::High } else { Priority::Normal };
    ctx.start_children::<Parcel>((1..=event.parcels).map(|n| (parcel(&order, n), Pack)))?.priority(priority);
    Ok(())
}

/// Runs once, when the last parcel has been delivered or lost.
#[verb]
async fn shipped(ctx: &mut Ctx<'_>, parcels: &mut Parcels, all: ChildrenEnded) -> Result {
    *parcels = Parcels { delivered: all.in_state(ParcelState::Arrived), lost: all.in_state(ParcelState::Missing) };
    match parcels.lost {
        0 => ctx.next(Close)?,
        lost => ctx.next(Refund { parcels: lost })?,
    }
    Ok(())
}

#[verb]
async fn refunded(ctx: &mut Ctx<'_>, carrier: Data<Carrier>, event: Refund) -> Result {
    carrier.booked.keyed(ctx.idempotency_key(), format!("{} is refunded for {} parcels", ctx.key(), event.parcels)).await;
    Ok(())
}

#[verb]
async fn complete(_event: Close) -> Result {
    Ok(())
}

/// The carrier takes so many parcels a second: the limit holds over all processes, and a parcel that waits for it uses no attempt.
#[verb(limit = "carrier")]
#[retry(5, "5s", "1m")]
async fn handed(ctx: &mut Ctx<'_>, carrier: Data<Carrier>, _event: Pack) -> Result {
    let (label, now) = (ctx.idempotency_key().to_owned(), ctx.now());
    Ok(carrier.take(&label, ctx.key(), ctx.attempt(), now).await?)
}

#[verb]
async fn arrived(_event: Delivered) -> Result {
    Ok(())
}
#[verb]
async fn missing(_event: Lost) -> Result {
    Ok(())
}

fsm! {
    /// An order, until all of its parcels have arrived or are refunded.
    pub machine Order = "order" {
        retry(5, "1s", "1m");
        keeps Parcels;
        start shipping;
        shipping -> shipped;
        shipped -> complete | refunded;
        end complete, refunded;
    }
}

fsm! {
    /// A parcel, from the shelf to the customer.
    pub machine Parcel = "parcel" {
        retry(5, "1s", "1m");
        start handed;
        handed -> arrived | missing;
        end arrived, missing;
    }
}

/// The key of a parcel of an order.
pub fn parcel(order: &str, n: u32) -> String {
    format!("{order}/parcel-{n}")
}

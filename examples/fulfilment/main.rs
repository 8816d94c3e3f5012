//! Orders with parcels: children that are awaited together, a carrier that takes only so many parcels a second, customers who go first, a
//! parcel that is lost, and its refund.
//!
//! ```sh
//! cargo run --example fulfilment
//! ```
//!
//! The orders run under the clock of a test bed, so that a quarter of a minute passes in a second. A program that ships parcels builds a `Runtime` with
//! the same limit instead; the machines stay the same.
//!
//! The program exits with status 1 if an order did not end as expected, or if the carrier was asked too often.

mod carrier;
mod order;

use std::process::ExitCode;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};

use carrier::{Carrier, PER_SECOND};
use order::{Delivered, Lost, Order, OrderState, Parcel, ParcelState, Parcels, Ship, parcel};

/// The parcel that the carrier loses.
const LOST: &str = "order-7/parcel-2";
/// The number of parcels of each order.
const PARCELS: u32 = 3;

fn shop(carrier: &Carrier) -> TestBedBuilder {
    let builder = TestBed::builder().only::<Order>().only::<Parcel>().data(carrier.clone()).data(carrier.booked.clone());
    builder.limit("carrier", Limit::per_second(PER_SECOND))
}

/// Ships `orders` orders and then one of a VIP, until all parcels have been delivered or lost. All sends have deduplication ids, so that a
/// scenario can be repeated after a crash.
async fn ship(bed: &TestBed, orders: u32) -> Result<(), fsm::Error> {
    let (shop, parcels) = (bed.machine::<Order>(), bed.machine::<Parcel>());
    for n in 1..=orders {
        shop.send(format!("order-{n}"), Ship { parcels: PARCELS, is_vip: false }).dedup("ship").await?;
    }
    shop.send("vip", Ship { parcels: PARCELS, is_vip: true }).dedup("ship").priority(Priority::High).await?;
    // Time for all parcels at the rate of the carrier, and for the retries.
    bed.advance(Duration::from_secs(u64::from(orders * PARCELS / PER_SECOND) + 10)).await;
    let mut page = parcels.list(Filter::default().state(ParcelState::Handed).limit(1000)).await?;
    loop {
        for parcel in &page.items {
            match parcel.key == LOST {
                true => parcels.send(&parcel.key, Lost).dedup("carrier").await?,
                false => parcels.send(&parcel.key, Delivered).dedup("carrier").await?,
            };
        }
        let Some(next) = page.next else { break };
        page = parcels.list(Filter::default().state(ParcelState::Handed).limit(1000).after(next)).await?;
    }
    bed.run_until_idle().await;
    Ok(())
}

/// The state and the parcels in which each order ends.
fn expected(order: &str) -> (OrderState, Parcels) {
    match LOST.starts_with(&format!("{order}/")) {
        true => (OrderState::Refunded, Parcels { delivered: 2, lost: 1 }),
        false => (OrderState::Complete, Parcels { delivered: 3, lost: 0 }),
    }
}

async fn run() -> Result<bool, fsm::Error> {
    let carrier = Carrier::default();
    let bed = shop(&carrier).sqlite().await;
    let orders = 40;
    ship(&bed, orders).await?;
    let mut is_well = true;
    for n in 0..=orders {
        let key = if n == 0 { "vip".to_owned() } else { format!("order-{n}") };
        let order = bed.machine::<Order>().get(&key).await?.expect("all were sent");
        is_well &= (order.state, &order.record) == (Some(expected(&key).0), &expected(&key).1) && order.version == 3;
    }
    let lost = bed.machine::<Order>().history("order-7").await?;
    println!("The order whose second parcel was lost:");
    lost.iter().for_each(|entry| println!("  {entry}"));

    let requested = carrier.requested();
    let last = requested.iter().position(|key| *key == parcel("vip", PARCELS)).expect("the VIP's parcels were handed over");
    println!("\nThe carrier was asked for {} labels, at most {} within a second.", requested.len(), carrier.most_within_a_second());
    println!("The VIP ordered last; the last parcel of that order was number {} of {}.", last + 1, requested.len());
    is_well &= carrier.most_within_a_second() <= PER_SECOND as usize + 1 && last < requested.len() / 2;
    is_well &= carrier.booked.happened("order-7 is refunded for 1 parcels") == 1;
    println!("\n{}", if is_well { "Every order ended as expected." } else { "AN ORDER DID NOT END AS EXPECTED." });
    Ok(is_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fulfilment: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn forty_orders_end_as_expected() {
        assert!(run().await.expect("the database works"));
    }

    #[tokio::test]
    async fn the_orders_end_as_expected_on_postgres() {
        let carrier = Carrier::default();
        let bed = shop(&carrier).postgres().await;
        ship(&bed, 10).await.expect("every send is accepted");
        for key in ["order-1", "order-7", "order-10", "vip"] {
            let order = bed.machine::<Order>().get(key).await.expect("the database works").expect("all were sent");
            assert_eq!((order.state, order.record), (Some(expected(key).0), expected(key).1), "{key}");
        }
        assert_eq!(carrier.booked.happened("order-7 is refunded for 1 parcels"), 1);
    }

    /// The carrier and the bank know the idempotency keys, so that each parcel is taken once and each refund is paid once.
    #[tokio::test]
    async fn a_crash_at_any_point_changes_nothing_about_the_end() {
        let carrier = Carrier::default();
        let scenario = |bed: Arc<TestBed>| async move {
            let (shop, parcels) = (bed.machine::<Order>(), bed.machine::<Parcel>());
            shop.send("order-7", Ship { parcels: 2, is_vip: false }).dedup("ship").await.expect("the send is accepted");
            bed.advance(Duration::from_secs(1)).await;
            parcels.send(parcel("order-7", 1), Delivered).dedup("carrier").await.expect("the send is accepted");
            parcels.send(LOST, Lost).dedup("carrier").await.expect("the send is accepted");
            bed.run_until_idle().await;
            let order = shop.get("order-7").await.expect("the database works").expect("it was sent");
            (order.state, order.record)
        };
        let crashes = shop(&carrier).sqlite().await.crash_at_every_point(scenario).await;
        println!("{crashes}");
        assert!(crashes.points > 50, "{crashes}");
    }
}

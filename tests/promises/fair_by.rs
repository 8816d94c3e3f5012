//! Fairness: with `fair_by`, the values of a search field share the slots evenly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::sql_runner::{SqlRunner, run};
use crate::support::{Folder, assert_invariants_hold};

const WAIT: Duration = Duration::from_secs(10);

/// The keys of the calls that succeeded, in that order.
type Order = Arc<Mutex<Vec<String>>>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Delivery {
    tenant: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pack {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ship;

fn later(ctx: &Ctx<'_>, order: &Order) -> Result {
    if ctx.attempt() == 1 {
        return Err(Failure::new("later, with all the others"));
    }
    order.lock().unwrap().push(ctx.key().to_owned());
    Ok(())
}

/// Fails at first, so that all calls are due again at the same time.
#[verb]
#[retry(1, "10s")]
async fn packed(ctx: &mut Ctx<'_>, record: &mut Delivery, order: Data<Order>, event: Pack) -> Result {
    record.tenant = event.tenant.unwrap_or_default();
    later(ctx, &order)
}

#[verb]
#[retry(1, "10s")]
async fn shipped(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Ship) -> Result {
    later(ctx, &order)
}

fsm! {
    machine Parcel = "fair-parcel" {
        keeps Delivery, search(tenant), fair_by = tenant;
        start packed;
        packed -> shipped;
        end shipped;
    }
}

fn slots(slots: u32, order: &Order) -> TestBedBuilder {
    TestBed::builder().only::<Parcel>().data(Arc::clone(order)).with(move |builder| builder.concurrency(slots))
}

/// Declares tests that run on SQLite in memory, on a SQLite file and on PostgreSQL, with this number of slots.
macro_rules! with_slots {
    ($($(#[doc = $doc:literal])* async fn $name:ident($bed:ident, $order:ident in $slots:expr) $body:block)*) => { $(
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            async fn check($bed: &TestBed, $order: &Order) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let order = Order::default();
                let bed = slots($slots, &order).sqlite().await;
                check(&bed, &order).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn file() {
                let folder = Folder::new(concat!("fairness-", stringify!($name)));
                let order = Order::default();
                let bed = slots($slots, &order).on(&folder.url("fsm.db")).await;
                check(&bed, &order).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let order = Order::default();
                let bed = slots($slots, &order).postgres().await;
                check(&bed, &order).await;
                assert_invariants_hold(&bed).await;
            }
        }
    )* };
}

/// Sends the first events of so many instances of a tenant. Their keys begin with its name.
async fn pack(bed: &TestBed, tenant: &str, count: usize) {
    let of = Some(tenant.to_owned()).filter(|tenant| tenant != "nobody");
    let items = (0..count).map(|n| (format!("{tenant}-{n:04}"), Pack { tenant: of.clone() }));
    for sent in bed.machine::<Parcel>().send_many(items).collect().await.unwrap() {
        sent.unwrap();
    }
}

/// The tenants in the order in which their calls succeeded.
fn tenants(order: &Order) -> Vec<String> {
    order.lock().unwrap().iter().map(|key| key.split('-').next().unwrap().to_owned()).collect()
}

fn count(of: &str, among: &[String]) -> usize {
    among.iter().filter(|tenant| *tenant == of).count()
}

with_slots! {
    /// All are due at the same time, and those of the flood were sent first.
    async fn the_first_call_of_a_tenant_waits_for_no_flood_of_another(bed, order in 4) {
        pack(bed, "flood", 600).await;
        pack(bed, "drip", 1).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = tenants(order);
        let place = ran.iter().position(|tenant| tenant == "drip").unwrap();
        assert!(ran.len() == 601 && place < 8, "the call came {place}th of {}", ran.len());
    }

    async fn the_values_share_the_slots_evenly(bed, order in 3) {
        for tenant in ["a", "b", "c"] {
            pack(bed, tenant, 60).await;
        }
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = tenants(order);
        let shares = ["a", "b", "c"].map(|tenant| count(tenant, &ran[..60]));
        assert!(shares.iter().all(|share| (18..=22).contains(share)), "{shares:?} of 60");
    }

    async fn a_tenant_alone_has_all_slots(bed, order in 4) {
        pack(bed, "a", 50).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        assert_eq!(order.lock().unwrap().len(), 50);
    }

    /// Instances whose event does not name the field share as one value.
    async fn instances_without_a_value_share_as_one(bed, order in 2) {
        pack(bed, "flood", 200).await;
        pack(bed, "nobody", 3).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = tenants(order);
        let last = ran.iter().rposition(|tenant| tenant == "nobody").unwrap();
        assert!(ran.len() == 203 && last < 12, "the last came {last}th");
    }

    async fn priorities_hold_within_a_value(bed, order in 1) {
        let parcels = bed.machine::<Parcel>();
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            for n in 0..4 {
                parcels.send(format!("a-{priority}-{n}"), Pack { tenant: Some("a".into()) }).priority(priority).await.unwrap();
            }
        }
        pack(bed, "b", 12).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran: Vec<_> = order.lock().unwrap().iter().filter(|key| key.starts_with('a')).cloned().collect();
        let high = ran[..6].iter().filter(|key| key.starts_with("a-high")).count();
        assert!(high >= 3 && ran[11].starts_with("a-low"), "{ran:?}");
    }

    /// The later calls of an instance count for the value of its record.
    async fn the_value_is_that_of_the_record_once_there_is_one(bed, order in 2) {
        pack(bed, "flood", 100).await;
        pack(bed, "drip", 1).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        order.lock().unwrap().clear();
        let parcels = bed.machine::<Parcel>();
        for n in 0..100 {
            parcels.send(format!("flood-{n:04}"), Ship).await.unwrap();
        }
        parcels.send("drip-0000", Ship).await.unwrap();
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = tenants(order);
        let place = ran.iter().position(|tenant| tenant == "drip").unwrap();
        assert!(ran.len() == 101 && place < 6, "the call came {place}th of {}", ran.len());
    }
}

/// On PostgreSQL, the type of the column excludes such a value.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_row_that_cannot_be_read_delays_no_other_value() {
    let order = Order::default();
    let bed = slots(2, &order).only::<SqlRunner>().sqlite().await;
    for tenant in ["a", "b"] {
        bed.machine::<Parcel>().send(tenant, Pack { tenant: Some(tenant.into()) }).await.unwrap();
    }
    bed.run_until_idle().await;
    run(&bed, "create table kept as select call_id from fsm_instances where key = 'a'").await;
    run(&bed, "update fsm_instances set call_id = x'00' where key = 'a'").await;
    bed.advance(WAIT).await;
    assert_eq!(*order.lock().unwrap(), ["b"]);
    run(&bed, "update fsm_instances set call_id = (select call_id from kept) where key = 'a'").await;
    bed.advance(60 * WAIT).await;
    assert_eq!(*order.lock().unwrap(), ["b", "a"]);
}

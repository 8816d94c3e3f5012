//! Limits by value: each value of a search field has the limit for itself, over all processes of a database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::LimitSetting;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::whole::WholeDatabase;
use serde::{Deserialize, Serialize};

use crate::sql_runner::{SqlRunner, run};
use crate::support::{Folder, PARTITIONS, assert_invariants_hold};

const SECOND: Duration = Duration::from_secs(1);

/// Counts the calls of each value that run, over all processes of a test, and notes when they start.
#[derive(Debug, Default)]
struct Meter(Mutex<HashMap<String, Of>>);

#[derive(Debug, Default)]
struct Of {
    running: usize,
    most: usize,
    starts: Vec<Timestamp>,
}

impl Meter {
    fn begin(&self, value: &str, now: Timestamp) {
        let mut all = self.0.lock().unwrap();
        let of = all.entry(value.to_owned()).or_default();
        of.running += 1;
        of.most = of.most.max(of.running);
        of.starts.push(now);
    }

    fn end(&self, value: &str) {
        self.0.lock().unwrap().get_mut(value).unwrap().running -= 1;
    }

    fn most(&self, value: &str) -> usize {
        self.0.lock().unwrap().get(value).map_or(0, |of| of.most)
    }

    fn started(&self, value: &str) -> usize {
        self.0.lock().unwrap().get(value).map_or(0, |of| of.starts.len())
    }

    fn all_started(&self) -> usize {
        self.0.lock().unwrap().values().map(|of| of.starts.len()).sum()
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Account {
    tenant: String,
    region: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Import {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    region: String,
    /// The tenant that the verb writes into the record.
    becomes: Option<String>,
    /// The attempts that fail.
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Export;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hang {
    tenant: String,
}

async fn measured(meter: &Meter, value: &str, now: Timestamp) {
    meter.begin(value, now);
    tokio::time::sleep(Duration::from_millis(2)).await;
    meter.end(value);
}

/// Calls the tenant's own system.
#[verb(limit = "tenant")]
#[retry(3, "10s")]
async fn imported(ctx: &mut Ctx<'_>, record: &mut Account, meter: Data<Arc<Meter>>, event: Import) -> Result {
    measured(&meter, event.tenant.as_deref().unwrap_or("nobody"), ctx.now()).await;
    if ctx.attempt() <= event.failures {
        return Err(Failure::new("not yet"));
    }
    record.tenant = event.becomes.or(event.tenant).unwrap_or_default();
    record.region = event.region;
    Ok(())
}

/// Calls the same system.
#[verb(limit = "tenant")]
async fn exported(ctx: &mut Ctx<'_>, record: &mut Account, meter: Data<Arc<Meter>>, _event: Export) -> Result {
    measured(&meter, &record.tenant, ctx.now()).await;
    Ok(())
}

/// Never ends at its first attempt.
#[verb(limit = "tenant")]
#[retry(1, "1s")]
async fn hung(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, event: Hang) -> Result {
    meter.begin(&event.tenant, ctx.now());
    if ctx.attempt() == 1 {
        std::future::pending::<()>().await;
    }
    meter.end(&event.tenant);
    Ok(())
}

fsm! {
    machine Sync = "sync" {
        keeps Account, search(tenant, region);
        start imported | hung;
        imported -> exported;
        end exported, hung;
    }
}

/// Has the limit, and no search field.
#[verb(limit = "tenant")]
async fn copied(_event: Export) -> Result {
    Ok(())
}

fsm! {
    machine Copy = "sync-copy" {
        start copied;
        end copied;
    }
}

fn syncs(limit: LimitSetting, meter: &Arc<Meter>) -> TestBedBuilder {
    TestBed::builder().only::<Sync>().data(Arc::clone(meter)).limit("tenant", limit)
}

/// Declares a test that runs on SQLite in memory, on a SQLite file, on PostgreSQL and on PostgreSQL with partitions, with a limit and the
/// meter of its calls.
macro_rules! limited {
    ($($(#[doc = $doc:literal])* async fn $name:ident($bed:ident, $meter:ident in $limit:expr) $body:block)*) => { $(
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            async fn check($bed: &TestBed, $meter: &Arc<Meter>) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let meter = Arc::default();
                let bed = syncs($limit, &meter).sqlite().await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn file() {
                let folder = Folder::new(concat!("limits-by-value-", stringify!($name)));
                let meter = Arc::default();
                let bed = syncs($limit, &meter).on(&folder.url("fsm.db")).await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let meter = Arc::default();
                let bed = syncs($limit, &meter).postgres().await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn partitions() {
                let meter = Arc::default();
                let bed = syncs($limit, &meter).partitions(PARTITIONS).await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }
        }
    )* };
}

fn import(tenant: &str) -> Import {
    Import { tenant: Some(tenant.to_owned()).filter(|tenant| tenant != "nobody"), region: "eu".to_owned(), becomes: None, failures: 0 }
}

async fn send(bed: &TestBed, tenant: &str, count: usize) {
    let items = (0..count).map(|n| (format!("{tenant}-{n:05}"), import(tenant)));
    for sent in bed.machine::<Sync>().send_many(items).collect().await.unwrap() {
        sent.unwrap();
    }
}

/// Runs what is due until so many calls have started, of which some never end.
async fn until_started(bed: &TestBed, meter: &Meter, starts: usize) {
    let started = async {
        while meter.all_started() < starts {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = bed.run_until_idle() => panic!("a call that never ends has ended"),
        () = started => {}
    }
}

async fn admin(bed: &TestBed) -> WholeDatabase {
    WholeDatabase::open(Opening::inside(bed)).await.unwrap()
}

limited! {
    async fn no_more_calls_of_a_value_run_at_once_than_the_limit_says(bed, meter in Limit::concurrency(2).by("tenant")) {
        send(bed, "acme", 20).await;
        send(bed, "bolt", 1).await;
        send(bed, "cord", 20).await;
        bed.run_until_idle().await;
        assert_eq!(["acme", "bolt", "cord"].map(|tenant| (meter.started(tenant), meter.most(tenant))), [(20, 2), (1, 1), (20, 2)]);
    }

    async fn the_values_are_counted_over_all_processes(bed, meter in Limit::concurrency(2).by("tenant")) {
        if bed.url() == "sqlite::memory:" {
            return;
        }
        send(bed, "acme", 40).await;
        send(bed, "bolt", 40).await;
        let beside = syncs(Limit::concurrency(2).by("tenant"), meter).beside(bed).await.unwrap();
        tokio::join!(bed.run_until_idle(), beside.run_until_idle());
        bed.run_until_idle().await;
        assert_eq!(["acme", "bolt"].map(|tenant| (meter.started(tenant), meter.most(tenant))), [(40, 2), (40, 2)]);
    }

    async fn instances_without_the_value_share_as_one(bed, meter in Limit::concurrency(1).by("tenant")) {
        send(bed, "nobody", 8).await;
        send(bed, "acme", 3).await;
        bed.run_until_idle().await;
        assert_eq!(["nobody", "acme"].map(|tenant| (meter.started(tenant), meter.most(tenant))), [(8, 1), (3, 1)]);
    }

    /// 300 values are more than one look considers. The process that ran the call of the first value is gone.
    async fn a_value_at_its_limit_hides_no_call_of_another(bed, meter in Limit::concurrency(1).by("tenant")) {
        bed.machine::<Sync>().send("h", Hang { tenant: "acme".into() }).await.unwrap();
        until_started(bed, meter, 1).await;
        bed.restart().await;
        send(bed, "acme", 600).await;
        for n in 0..300 {
            send(bed, &format!("t-{n:03}"), 2).await;
        }
        bed.run_until_idle().await;
        let of_others: usize = (0..300).map(|n| meter.started(&format!("t-{n:03}"))).sum();
        assert_eq!((of_others, meter.started("acme")), (600, 1));
    }

    async fn a_rate_is_of_each_value(bed, meter in Limit::per_second(2).by("tenant")) {
        send(bed, "acme", 12).await;
        send(bed, "bolt", 12).await;
        bed.advance(Duration::from_secs(3)).await;
        for tenant in ["acme", "bolt"] {
            let started = meter.started(tenant);
            assert!((6..=7).contains(&started), "{tenant}: {started} in 3 s");
        }
        bed.advance(Duration::from_secs(3)).await;
        assert_eq!(meter.all_started(), 24);
    }

    /// The first attempt has the value of its event. The second verb has that of the record.
    async fn a_call_has_the_value_that_its_instance_has_when_it_is_due(bed, meter in Limit::concurrency(1).by("tenant")) {
        let syncs = bed.machine::<Sync>();
        for n in 0..6 {
            let sent = Import { becomes: Some("merged".into()), ..import(&format!("old-{n}")) };
            syncs.send(format!("k-{n}"), sent).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!(meter.all_started(), 6);
        for n in 0..6 {
            syncs.send(format!("k-{n}"), Export).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!((meter.started("merged"), meter.most("merged")), (6, 1));
    }

    async fn a_retry_waits_for_the_limit_of_its_value_again(bed, meter in Limit::concurrency(1).by("tenant")) {
        for n in 0..4 {
            bed.machine::<Sync>().send(format!("k-{n}"), Import { failures: 2, ..import("acme") }).await.unwrap();
        }
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!((meter.started("acme"), meter.most("acme")), (12, 1));
    }

    async fn a_call_that_waits_names_the_limit_and_the_value(bed, meter in Limit::concurrency(0).by("tenant")) {
        send(bed, "acme", 1).await;
        send(bed, "nobody", 1).await;
        bed.run_until_idle().await;
        let activity = async |key: &str| bed.machine::<Sync>().get(key).await.unwrap().unwrap().activity().to_string();
        let says = activity("acme-00000").await;
        assert!(says.starts_with("waits for the limit \"tenant\" of \"acme\", for attempt 1 of 4 of `imported`"), "{says}");
        let says = activity("nobody-00000").await;
        assert!(says.starts_with("waits for the limit \"tenant\" of those without a value, for attempt 1 of 4 of `imported`"), "{says}");
        let shown = admin(bed).await.limits().await.unwrap().remove(0);
        assert_eq!((shown.limit.by.as_deref(), shown.running, shown.waiting, meter.all_started()), (Some("tenant"), 0, 2, 0));
    }

    async fn the_place_of_a_dead_worker_is_free_for_its_value_when_its_lease_has_ended(bed, meter in Limit::concurrency(1).by("tenant")) {
        bed.machine::<Sync>().send("h", Hang { tenant: "acme".into() }).await.unwrap();
        until_started(bed, meter, 1).await;
        bed.restart().await;
        send(bed, "acme", 3).await;
        send(bed, "bolt", 2).await;
        bed.run_until_idle().await;
        assert_eq!((meter.started("acme"), meter.started("bolt")), (1, 2), "the lease of the dead worker has not ended");
        bed.advance(Duration::from_secs(120)).await;
        assert_eq!(meter.started("acme"), 5, "the second attempt, and three others");
    }

    async fn a_paused_instance_takes_no_place_of_its_value(bed, meter in Limit::concurrency(1).by("tenant")) {
        send(bed, "acme", 2).await;
        bed.machine::<Sync>().pause("acme-00000").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(meter.started("acme"), 1);
        bed.machine::<Sync>().resume("acme-00000").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(meter.started("acme"), 2);
    }

    /// 20 calls wait with their values when the field changes, and when the limit is for all together.
    async fn the_search_field_of_a_limit_can_change(bed, meter in Limit::concurrency(0).by("tenant")) {
        if bed.url() == "sqlite::memory:" {
            return;
        }
        send(bed, "acme", 10).await;
        send(bed, "bolt", 10).await;
        bed.run_until_idle().await;
        let beside = syncs(Limit::concurrency(0).by("region"), meter).beside(bed).await.unwrap();
        beside.run_until_idle().await;
        let says = bed.machine::<Sync>().get("acme-00000").await.unwrap().unwrap().activity().to_string();
        assert!(says.starts_with("waits for the limit \"tenant\" of \"eu\""), "{says}");
        let all = syncs(Limit::concurrency(1), meter).beside(bed).await.unwrap();
        tokio::join!(bed.run_until_idle(), beside.run_until_idle(), all.run_until_idle());
        all.run_until_idle().await;
        assert_eq!((meter.all_started(), meter.most("acme"), meter.most("bolt")), (20, 1, 1));
    }

    async fn a_machine_without_the_search_field_makes_the_start_fail(bed, meter in Limit::concurrency(1).by("tenant")) {
        let builder = syncs(Limit::concurrency(1).by("tenant"), meter).only::<Copy>();
        let Err(error) = builder.beside(bed).await else { panic!("it starts") };
        assert!(error.is_input(), "{error}");
        assert_eq!(
            error.to_string(),
            "the verb `copied` of \"sync-copy\" has the limit \"tenant\", which is by `tenant`, and \"sync-copy\" has no such search field; \
             declare it with `keeps Record, search(…);` in `fsm!`"
        );
        let builder = syncs(Limit::concurrency(1).by("tenant"), meter).limit("a=b", Limit::concurrency(1));
        let Err(error) = builder.beside(bed).await else { panic!("it starts") };
        assert_eq!(error.to_string(), "the name of a limit does not contain `=`: `a=b`");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_row_that_cannot_be_read_stops_no_other_call() {
    let meter = Arc::default();
    let bed = syncs(Limit::concurrency(1).by("tenant"), &meter).only::<SqlRunner>().sqlite().await;
    send(&bed, "acme", 3).await;
    send(&bed, "bolt", 1).await;
    run(&bed, "create table kept as select call_id from fsm_instances where key = 'acme-00000'").await;
    run(&bed, "update fsm_instances set call_id = x'00' where key = 'acme-00000'").await;
    bed.advance(SECOND).await;
    assert_eq!((meter.started("acme"), meter.started("bolt")), (2, 1));
    run(&bed, "update fsm_instances set call_id = (select call_id from kept) where key = 'acme-00000'").await;
    bed.advance(600 * SECOND).await;
    assert_eq!((meter.started("acme"), meter.most("acme")), (3, 1));
}

//! Limits hold over all partitions of a database: at most so many calls of a verb run at once, and start in a time, and so it is for each value of a
//! search field.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{LimitSetting, partition_of};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::limits::LimitChange;
use fsm_runtime::admin::whole::WholeDatabase;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use crate::support::assert_invariants_hold;

const PARTITIONS: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

/// Counts the calls of each value that run, over all processes of a test, and notes the key and the time of each start.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<HashMap<String, Of>>);

#[derive(Debug, Default)]
struct Of {
    running: usize,
    most: usize,
    starts: Vec<(String, Timestamp)>,
}

/// A call that runs. It ends also if its process dies.
pub(crate) struct Running<'m>(&'m Meter, &'m str);

impl Meter {
    pub(crate) fn begin<'m>(&'m self, value: &'m str, key: &str, now: Timestamp) -> Running<'m> {
        let mut all = self.0.lock().unwrap();
        let of = all.entry(value.to_owned()).or_default();
        of.running += 1;
        of.most = of.most.max(of.running);
        of.starts.push((key.to_owned(), now));
        Running(self, value)
    }

    pub(crate) fn most(&self, value: &str) -> usize {
        self.0.lock().unwrap().get(value).map_or(0, |of| of.most)
    }

    pub(crate) fn started(&self, value: &str) -> Vec<(String, Timestamp)> {
        self.0.lock().unwrap().get(value).map(|of| of.starts.clone()).unwrap_or_default()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().get_mut(self.1).unwrap().running -= 1;
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Account {
    tenant: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Import {
    tenant: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note;

/// Calls the payment provider.
#[verb(limit = "stripe")]
#[retry("1s")]
async fn charged(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, _event: Charge) -> Result {
    let _running = meter.begin("stripe", ctx.key(), ctx.now());
    tokio::time::sleep(Duration::from_millis(3)).await;
    Ok(())
}

/// Calls the tenant's own system.
#[verb(limit = "tenant")]
#[retry("1s")]
async fn imported(ctx: &mut Ctx<'_>, record: &mut Account, meter: Data<Arc<Meter>>, event: Import) -> Result {
    let _running = meter.begin(&event.tenant, ctx.key(), ctx.now());
    tokio::time::sleep(Duration::from_millis(3)).await;
    record.tenant = event.tenant.clone();
    Ok(())
}

/// Has no limit.
#[verb]
async fn noted(_event: Note) -> Result {
    Ok(())
}

fsm! {
    machine Bill = "partition-bill" {
        keeps Account, search(tenant);
        start charged | imported | noted;
        any(charged, imported, noted) -> charged | imported | noted;
    }
}

fn bills(stripe: LimitSetting, meter: &Arc<Meter>) -> TestBedBuilder {
    let builder = TestBed::builder().only::<Bill>().data(Arc::clone(meter));
    builder.limit("stripe", stripe).limit("tenant", Limit::concurrency(2).by("tenant"))
}

async fn charge(bed: &TestBed, count: usize) {
    for sent in bed.machine::<Bill>().send_many((0..count).map(|n| (format!("bill-{n:03}"), Charge))).collect().await.unwrap() {
        sent.unwrap();
    }
}

/// The result of this query, added up over all partitions.
async fn sum(bed: &TestBed, query: &str) -> i64 {
    let mut sum = 0;
    for listed in fsm_runtime::admin::partitions::list(&Opening::to_act(bed.url())).await.unwrap() {
        let mut server = PgConnection::connect(listed.place.url.as_deref().unwrap_or(bed.url())).await.unwrap();
        let set = format!("set search_path to {}", listed.place.schema);
        sqlx::query(sqlx::AssertSqlSafe(set)).execute(&mut server).await.unwrap();
        sum += sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(query.to_owned())).fetch_one(&mut server).await.unwrap();
        server.close().await.unwrap();
    }
    sum
}

#[tokio::test]
async fn no_more_calls_run_at_once_in_all_partitions_than_the_limit_says() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(3), &meter).partitions(PARTITIONS).await;
    charge(&bed, 60).await;
    bed.run_until_idle().await;
    assert_eq!((meter.started("stripe").len(), meter.most("stripe")), (60, 3));
    assert_eq!(sum(&bed, "select count(*) from fsm_limit_permits").await, 0, "each permit is released at the end of its call");
    assert_invariants_hold(&bed).await;
}

#[tokio::test]
async fn the_calls_of_several_processes_are_counted_together() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(2), &meter).partitions(PARTITIONS).await;
    let beside = bills(Limit::concurrency(2), &meter).beside(&bed).await.unwrap();
    charge(&bed, 60).await;
    tokio::join!(bed.run_until_idle(), beside.run_until_idle());
    bed.advance(5 * SECOND).await;
    assert_eq!((meter.started("stripe").len(), meter.most("stripe")), (60, 2));
    assert_invariants_hold(&bed).await;
}

#[tokio::test]
async fn calls_of_all_partitions_take_turns_under_a_limit_that_has_always_more_work() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(1), &meter).partitions(PARTITIONS).await;
    charge(&bed, 80).await;
    bed.run_until_idle().await;
    let partitions: Vec<u32> = meter.started("stripe").iter().map(|(key, _)| partition_of(key, PARTITIONS)).collect();
    for partition in 0..PARTITIONS {
        let first = partitions.iter().position(|of| *of == partition).unwrap();
        assert!(first < 30, "the first call of partition {partition} is number {first}: {partitions:?}");
    }
}

#[tokio::test]
async fn a_rate_is_of_all_partitions_together() {
    let meter = Arc::default();
    let bed = bills(Limit::per_second(20), &meter).partitions(PARTITIONS).await;
    charge(&bed, 100).await;
    bed.advance(3 * SECOND).await;
    let starts: Vec<Timestamp> = meter.started("stripe").into_iter().map(|(_, at)| at).collect();
    assert!((58..=62).contains(&starts.len()), "{} in 3 s", starts.len());
    for first in &starts {
        let within = starts.iter().filter(|start| **start >= *first && **start < *first + SECOND).count();
        assert!(within <= 21, "{within} in the second from {first}");
    }
    bed.advance(3 * SECOND).await;
    assert_eq!(meter.started("stripe").len(), 100);
}

#[tokio::test]
async fn a_value_is_counted_in_all_partitions_and_with_tags_in_its_own() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(3), &meter).partitions(PARTITIONS).await;
    let bills = bed.machine::<Bill>();
    for n in 0..24 {
        for tenant in ["acme", "bolt"] {
            bills.send(format!("{tenant}-{n}"), Import { tenant: tenant.to_owned() }).await.unwrap();
        }
        bills.send(format!("{{cord}}/{n}"), Import { tenant: "cord".to_owned() }).await.unwrap();
    }
    bed.run_until_idle().await;
    assert_eq!(["acme", "bolt", "cord"].map(|tenant| (meter.started(tenant).len(), meter.most(tenant))), [(24, 2); 3]);

    // With a tag nothing crosses: a permit would be granted for a partition that is not that of the instances.
    let of_cord = "select count(*) from fsm_limit_permits where bucket = 'tenant=cord'";
    for n in 0..8 {
        bills.send(format!("{{cord}}/{n}"), Import { tenant: "cord".to_owned() }).await.unwrap();
    }
    let began = meter.started("cord").len();
    tokio::select! {
        () = bed.run_until_idle() => {}
        () = async { while meter.started("cord").len() == began { tokio::time::sleep(Duration::from_millis(1)).await } } => {}
    }
    assert_eq!(sum(&bed, of_cord).await, 0);
    bed.run_until_idle().await;
}

#[tokio::test]
async fn a_crash_at_any_point_neither_exceeds_the_limit_nor_keeps_a_place() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(1), &meter).partitions(2).await;
    let home = partition_of("stripe", 2);
    let key_in = |form: String, partition| (0..).map(|n| format!("{form}-{n}")).find(|key| partition_of(key, 2) == partition).unwrap();
    // A third of the statements are tried.
    for crash in (0..).step_by(5) {
        let keys = [1 - home, home, 1 - home].map(|partition| key_in(format!("bill-{crash}-{}", uuid::Uuid::new_v4()), partition));
        let died = bed.crash_after_statements(crash, async {
            for key in &keys {
                bed.machine::<Bill>().send(key, Charge).await.unwrap();
            }
            bed.run_until_idle().await;
        });
        let died = died.await;
        // The attempts of the dead process are lost when its lease ends, and its permits are over then.
        bed.advance(Duration::from_secs(60)).await;
        for key in &keys {
            let bill = bed.machine::<Bill>().get(key).await.unwrap();
            assert!(bill.is_none_or(|bill| bill.state == Some(BillState::Charged)), "{key} after a death after {crash} statements");
        }
        assert!(meter.most("stripe") <= 1, "death after {crash} statements");
        assert_eq!(sum(&bed, "select count(*) from fsm_limit_permits").await, 0, "death after {crash} statements");
        if !died {
            assert!(crash > 40, "there are more than {crash} statements");
            return;
        }
    }
}

#[tokio::test]
async fn a_permit_that_no_claim_has_used_is_released_and_its_claim_fails_later() {
    let meter: Arc<Meter> = Arc::default();
    let bed = bills(Limit::concurrency(1), &meter).partitions(2).await;
    let (home, bills) = (partition_of("stripe", 2), bed.machine::<Bill>());
    let key = (0..).map(|n| format!("bill-{n}")).find(|key| partition_of(key, 2) != home).unwrap();
    bills.send(&key, Note).await.unwrap();
    bed.run_until_idle().await;
    let id = bills.get(&key).await.unwrap().unwrap().id;
    // A process died after the grant: a permit for the row version of now and one for a version that a fail-over has lost.
    let versions = sum(&bed, "select coalesce(sum(row_version), 0)::bigint from fsm_instances").await;
    let place = fsm_runtime::admin::partitions::list(&Opening::to_act(bed.url())).await.unwrap()[home as usize].place.clone();
    let mut server = PgConnection::connect(place.url.as_deref().unwrap_or(bed.url())).await.unwrap();
    for version in [versions + 1, versions + 50] {
        let put = format!(
            "insert into {}.fsm_limit_permits (instance_id, bucket, partition, row_version, granted_at) values ($1, 'stripe', $2, $3, $4)",
            place.schema
        );
        let put = sqlx::query(sqlx::AssertSqlSafe(put));
        put.bind(id.0).bind(i64::from(1 - home)).bind(version).bind(bed.now().as_micros()).execute(&mut server).await.unwrap();
        bills.send(&key, Charge).await.unwrap();
        let before = meter.started("stripe").len();
        bed.run_until_idle().await;
        assert_eq!(meter.started("stripe").len(), before, "the permit has the only place");
        bed.advance(3 * SECOND).await;
        assert_eq!(meter.started("stripe").len(), before + 1);
        assert_eq!(sum(&bed, "select count(*) from fsm_limit_permits").await, 0);
    }
}

#[tokio::test]
async fn an_operator_sees_one_line_for_a_limit_and_changes_it_for_all_partitions() {
    let meter = Arc::default();
    let bed = bills(Limit::concurrency(0), &meter).partitions(PARTITIONS).await;
    charge(&bed, 40).await;
    bed.run_until_idle().await;
    let whole = WholeDatabase::open(Opening::inside(&bed)).await.unwrap();
    let shown = whole.limits().await.unwrap();
    let lines: Vec<_> = shown.iter().map(|limit| (limit.name.as_str(), limit.limit.concurrency, limit.waiting)).collect();
    assert_eq!(lines, [("stripe", Some(0), 40), ("tenant", Some(2), 0)]);
    let change = LimitChange { concurrency: Some(Some(2)), ..LimitChange::default() };
    let changed = whole.change_limit("stripe", change, "ops").await.unwrap();
    assert_eq!((changed.limit.concurrency, changed.changed.0.as_deref()), (Some(2), Some("ops")));
    assert_eq!(sum(&bed, "select count(*) from fsm_limits where concurrency = 2 and changed_by = 'ops'").await, i64::from(PARTITIONS));
    bed.run_until_idle().await;
    assert_eq!((meter.started("stripe").len(), meter.most("stripe")), (40, 2));
    let error = whole.change_limit("stripes", change, "ops").await.unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("\"stripe\", \"tenant\""), "{error}");
}

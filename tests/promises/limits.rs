//! Limits: over all processes of a database, so many calls of a verb run at once, and so many start in a time. A call that waits for a limit is
//! a row: it uses no attempt, no retry and no slot.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Access, LimitSetting};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::limits::LimitChange;
use fsm_runtime::admin::whole::WholeDatabase;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::console::Browser;
use crate::support::{Folder, PARTITIONS, assert_invariants_hold};

const SECOND: Duration = Duration::from_secs(1);

/// Counts the calls that run, over all processes of a test, and notes when they start.
#[derive(Debug, Default)]
struct Meter {
    running: AtomicU32,
    most: AtomicU32,
    starts: Mutex<Vec<Timestamp>>,
}

impl Meter {
    fn begin(&self, now: Timestamp) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.starts.lock().unwrap().push(now);
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.most.load(Ordering::SeqCst)
    }

    fn started(&self) -> usize {
        self.starts.lock().unwrap().len()
    }

    /// The largest number of starts within `span`.
    fn most_within(&self, span: Duration) -> usize {
        let mut starts = self.starts.lock().unwrap().clone();
        starts.sort();
        let within = |first: usize| starts[first..].iter().take_while(|start| **start - starts[first] < span).count();
        (0..starts.len()).map(within).max().unwrap_or(0)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Charge {
    /// The attempts that fail.
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Refund;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hang;

/// Calls the payment provider.
#[verb(limit = "stripe")]
#[retry(3, "10s")]
async fn charged(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, event: Charge) -> Result {
    meter.begin(ctx.now());
    tokio::time::sleep(Duration::from_millis(2)).await;
    meter.end();
    if ctx.attempt() <= event.failures { Err(Failure::new("declined for now")) } else { Ok(()) }
}

/// Calls the same provider.
#[verb(limit = "stripe")]
async fn refunded(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, _event: Refund) -> Result {
    meter.begin(ctx.now());
    tokio::time::sleep(Duration::from_millis(2)).await;
    meter.end();
    Ok(())
}

/// Never ends at its first attempt.
#[verb(limit = "stripe")]
#[retry(1, "1s")]
async fn hung(ctx: &mut Ctx<'_>, meter: Data<Arc<Meter>>, _event: Hang) -> Result {
    meter.begin(ctx.now());
    if ctx.attempt() == 1 {
        std::future::pending::<()>().await;
    }
    meter.end();
    Ok(())
}

/// Has no limit.
#[verb]
async fn noted(_event: Note) -> Result {
    Ok(())
}

fsm! {
    machine Bill = "bill" {
        start charged | noted | hung;
        charged -> refunded;
        end noted, refunded, hung;
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fee;

/// Its limit is declared nowhere.
#[verb(limit = "bridge")]
async fn paid_toll(_event: Fee) -> Result {
    Ok(())
}

fsm! {
    machine Toll = "toll" {
        start paid_toll;
        end paid_toll;
    }
}

fn bills(limit: LimitSetting, meter: &Arc<Meter>) -> TestBedBuilder {
    TestBed::builder().only::<Bill>().data(Arc::clone(meter)).limit("stripe", limit)
}

/// Declares a test that runs on SQLite in memory, on a SQLite file and on PostgreSQL, with a limit and the meter of its calls.
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
                let bed = bills($limit, &meter).sqlite().await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn file() {
                let folder = Folder::new(concat!("limits-", stringify!($name)));
                let meter = Arc::default();
                let bed = bills($limit, &meter).on(&folder.url("fsm.db")).await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let meter = Arc::default();
                let bed = bills($limit, &meter).postgres().await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn partitions() {
                let meter = Arc::default();
                let bed = bills($limit, &meter).partitions(PARTITIONS).await;
                check(&bed, &meter).await;
                assert_invariants_hold(&bed).await;
            }
        }
    )* };
}

async fn charge(bed: &TestBed, count: usize) {
    let bills = bed.machine::<Bill>();
    let sent = (0..count).map(|n| bills.send(format!("b-{n:04}"), Charge { failures: 0 }).into_future());
    for sent in join_all(sent).await {
        sent.unwrap();
    }
}

/// Runs what is due until so many calls have started, of which some never end.
async fn until_started(bed: &TestBed, meter: &Meter, starts: usize) {
    let started = async {
        while meter.started() < starts {
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
    async fn no_more_calls_run_at_once_than_the_limit_says(bed, meter in Limit::concurrency(2)) {
        charge(bed, 30).await;
        bed.run_until_idle().await;
        assert_eq!((meter.started(), meter.most()), (30, 2));
    }

    async fn the_limit_counts_the_calls_of_all_verbs_and_all_processes(bed, meter in Limit::concurrency(3)) {
        charge(bed, 20).await;
        bed.run_until_idle().await;
        let bills = bed.machine::<Bill>();
        for n in 0..20 {
            bills.send(format!("b-{n:04}"), Refund).await.unwrap();
            bills.send(format!("c-{n:04}"), Charge { failures: 0 }).await.unwrap();
        }
        if bed.url() == "sqlite::memory:" {
            bed.run_until_idle().await;
        } else {
            let beside = bills_beside(bed, meter).await;
            tokio::join!(bed.run_until_idle(), beside.run_until_idle());
            bed.run_until_idle().await;
        }
        assert_eq!((meter.started(), meter.most()), (60, 3));
    }

    /// A second begins at every start. One start more than the rate may fall into it.
    async fn a_rate_of_20_a_second_is_20_and_not_more(bed, meter in Limit::per_second(20)) {
        charge(bed, 130).await;
        bed.advance(Duration::from_secs(5)).await;
        let started = meter.started();
        assert!((100..=102).contains(&started), "{started} in 5 s");
        assert!(meter.most_within(SECOND) <= 21, "{} within a second", meter.most_within(SECOND));
        bed.advance(Duration::from_secs(2)).await;
        assert_eq!(meter.started(), 130);
    }

    async fn a_burst_starts_at_once_and_the_rest_by_the_rate(bed, meter in Limit::per_minute(60).burst(10)) {
        charge(bed, 15).await;
        bed.run_until_idle().await;
        assert_eq!(meter.started(), 10);
        bed.advance(Duration::from_secs(3)).await;
        assert_eq!(meter.started(), 13);
        bed.advance(Duration::from_secs(2)).await;
        assert_eq!(meter.started(), 15);
    }

    async fn a_call_that_waits_is_a_row_and_no_attempt(bed, meter in Limit::concurrency(0)) {
        charge(bed, 1).await;
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(3600)).await;
        let bill = bed.machine::<Bill>().get("b-0000").await.unwrap().unwrap();
        let call = bill.call.clone().unwrap();
        assert_eq!((call.state, call.attempt, call.retries_left), (AttemptState::Scheduled, 1, Some(3)));
        assert_eq!((call.limit.as_deref(), call.worker, meter.started()), (Some("stripe"), None, 0));
        let says = bill.activity().to_string();
        assert!(says.starts_with("waits for the limit \"stripe\", for attempt 1 of 4 of `charged`"), "{says}");
    }

    async fn a_retry_waits_for_the_limit_again(bed, meter in Limit::concurrency(1)) {
        let bills = bed.machine::<Bill>();
        for n in 0..4 {
            bills.send(format!("b-{n}"), Charge { failures: 2 }).await.unwrap();
        }
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!((meter.started(), meter.most()), (12, 1));
        for n in 0..4 {
            let call = bills.attempts(format!("b-{n}")).await.unwrap();
            assert_eq!(call.iter().map(|attempt| attempt.retries_left).collect::<Vec<_>>(), [Some(3), Some(2), Some(1)]);
        }
    }

    /// The calls that wait are older than the others, and more than a claim takes.
    async fn calls_that_wait_for_a_limit_delay_no_other_work(bed, meter in Limit::concurrency(0)) {
        charge(bed, 1500).await;
        let bills = bed.machine::<Bill>();
        for n in 0..20 {
            bills.send(format!("n-{n}"), Note).after(SECOND).await.unwrap();
        }
        bed.advance(SECOND).await;
        let noted = bills.list(Filter::default().status(Status::Completed)).await.unwrap();
        assert_eq!((noted.items.len(), meter.started()), (20, 0));
    }

    async fn the_place_of_a_dead_worker_is_free_when_its_lease_has_ended(bed, meter in Limit::concurrency(1)) {
        bed.machine::<Bill>().send("h", Hang).await.unwrap();
        until_started(bed, meter, 1).await;
        charge(bed, 3).await;
        bed.restart().await;
        bed.run_until_idle().await;
        assert_eq!(meter.started(), 1, "the lease of the dead worker has not ended");
        bed.advance(Duration::from_secs(120)).await;
        assert_eq!(meter.started(), 5, "the second attempt, and three others");
        assert_eq!(bed.machine::<Bill>().get("h").await.unwrap().unwrap().status, Status::Completed);
    }

    async fn a_paused_instance_takes_no_place(bed, meter in Limit::concurrency(1)) {
        let bills = bed.machine::<Bill>();
        charge(bed, 2).await;
        bills.pause("b-0000").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(meter.started(), 1);
        bills.resume("b-0000").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(meter.started(), 2);
    }

    async fn an_operator_changes_a_limit_at_run_time(bed, meter in Limit::concurrency(0)) {
        charge(bed, 7).await;
        bed.run_until_idle().await;
        let admin = admin(bed).await;
        let shown = &admin.limits().await.unwrap()[0];
        assert_eq!((&*shown.name, shown.running, shown.waiting, meter.started()), ("stripe", 0, 7, 0));
        let change = LimitChange { concurrency: Some(Some(2)), ..LimitChange::default() };
        let changed = admin.change_limit("stripe", change, "ada").await.unwrap();
        assert_eq!((changed.limit.concurrency, changed.changed.0.as_deref()), (Some(2), Some("ada")));
        bed.run_until_idle().await;
        assert_eq!((meter.started(), meter.most()), (7, 2));
        let unknown = admin.change_limit("strip", change, "ada").await.unwrap_err();
        assert!(unknown.is_not_found() && unknown.to_string().ends_with("has no limit \"strip\"; it has \"stripe\""), "{unknown}");
    }

    async fn the_due_page_of_the_console_lists_limits(bed, meter in Limit::concurrency(0).per_second(20)) {
        charge(bed, 7).await;
        let browser = Browser::of(fsm::console(bed).authorize(|_| Access::Viewer.named("eve")));
        let mut waiting = 0;
        for number in 0..bed.partitions() {
            let path = if bed.partitions() == 1 { "/due".to_owned() } else { format!("/partition/{number}/due") };
            let page = browser.get(&path).await.text;
            let row = page.split("<tr>").find(|row| row.contains("<td>stripe</td>")).unwrap_or_else(|| panic!("{page}"));
            let cells: Vec<_> = row.split("<td").skip(1).map(|cell| cell.split(['>', '<']).nth(1).unwrap()).collect();
            let [first @ .., here, whose] = cells.as_slice() else { panic!("{cells:?}") };
            assert_eq!((first, *whose), (&["stripe", "all calls", "0", "20 in 1s", "0"][..], "the code"));
            waiting += here.parse::<u32>().unwrap();
        }
        assert_eq!(waiting, 7);
        assert_eq!(meter.started(), 0);
    }

    async fn the_setting_of_an_operator_survives_a_restart_of_the_same_code_and_no_other_code(bed, meter in Limit::concurrency(4)) {
        if bed.url() == "sqlite::memory:" {
            return;
        }
        let change = LimitChange { rate: Some(Some((7, SECOND))), ..LimitChange::default() };
        admin(bed).await.change_limit("stripe", change, "ada").await.unwrap();
        let setting = async |limit: LimitSetting| {
            let beside = bills(limit, meter).beside(bed).await.unwrap();
            let shown = admin(&beside).await.limits().await.unwrap().remove(0);
            (shown.limit.concurrency, shown.limit.rate.map(|rate| rate.starts), shown.changed.0)
        };
        assert_eq!(setting(Limit::concurrency(4)).await, (Some(4), Some(7), Some("ada".to_owned())));
        assert_eq!(setting(Limit::concurrency(5)).await, (Some(5), None, None));
    }

    async fn a_verb_whose_limit_nobody_declares_makes_the_start_fail(bed, meter in Limit::concurrency(1)) {
        let builder = TestBed::builder().only::<Bill>().only::<Toll>().data(Arc::clone(meter));
        let Err(error) = builder.limit("mail", Limit::per_hour(5)).beside(bed).await else { panic!("it starts") };
        assert!(error.is_input(), "{error}");
        assert_eq!(
            error.to_string(),
            "the verb `paid_toll` of \"toll\" has the limit \"bridge\", which is not declared; these limits exist: \"mail\", \"stripe\"; \
             declare it with `.limit(\"…\", Limit::concurrency(5))`"
        );
        let Err(error) = bills(Limit::concurrency(1), meter).limit("", Limit::concurrency(1)).beside(bed).await else { panic!("it starts") };
        assert_eq!(error.to_string(), "the name of a limit has 1 to 100 bytes, not 0: ``");
    }

    async fn a_limit_that_only_the_database_has_is_enough(bed, meter in Limit::concurrency(1)) {
        let beside = TestBed::builder().only::<Bill>().data(Arc::clone(meter)).beside(bed).await.unwrap();
        charge(&beside, 3).await;
        beside.run_until_idle().await;
        assert_eq!((meter.started(), meter.most()), (3, 1));
    }
}

async fn bills_beside(bed: &TestBed, meter: &Arc<Meter>) -> TestBed {
    bills(Limit::concurrency(3), meter).beside(bed).await.unwrap()
}

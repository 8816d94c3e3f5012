//! Priorities: if more calls are due than there are slots, high ones start first and low ones last, and calls of every priority run in the end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{SendItem, SendOutcome};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::support::{Folder, assert_invariants_hold};

const WAIT: Duration = Duration::from_secs(10);

/// The keys of the calls that succeeded, in that order.
type Order = Arc<Mutex<Vec<String>>>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Run;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hold;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pay;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tell {
    to: String,
}

/// Fails at first, so that all calls are due again at the same time.
#[verb]
#[retry(1, "10s")]
async fn ran(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Run) -> Result {
    if ctx.attempt() == 1 {
        return Err(Failure::new("later, with all the others"));
    }
    order.lock().unwrap().push(ctx.key().to_owned());
    Ok(())
}

/// Waits until the test opens the gate.
#[verb]
async fn held(gate: Data<Arc<Semaphore>>, _event: Hold) -> Result {
    gate.acquire().await.unwrap().forget();
    Ok(())
}

#[verb(limit = "provider")]
async fn paid(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Pay) -> Result {
    order.lock().unwrap().push(ctx.key().to_owned());
    Ok(())
}

#[verb]
async fn noted(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Note) -> Result {
    order.lock().unwrap().push(ctx.key().to_owned());
    Ok(())
}

/// Sends to another instance, now and later.
#[verb]
async fn told(ctx: &mut Ctx<'_>, event: Tell) -> Result {
    ctx.send::<Parcel>(format!("{}-now", event.to), Run)?.priority(Priority::High);
    ctx.send::<Parcel>(format!("{}-later", event.to), Run)?.priority(Priority::Low).after(WAIT);
    Ok(())
}

fsm! {
    machine Parcel = "parcel" {
        start ran | held | paid | noted | told;
        held -> ran;
        end ran, paid, noted, told;
    }
}

fn slots(slots: u32, order: &Order, gate: &Arc<Semaphore>) -> TestBedBuilder {
    let builder = TestBed::builder().only::<Parcel>().data(Arc::clone(order)).data(Arc::clone(gate));
    builder.limit("provider", Limit::concurrency(1)).with(move |builder| builder.concurrency(slots))
}

/// Declares tests that run on SQLite in memory, on a SQLite file and on PostgreSQL, with this number of slots.
macro_rules! with_slots {
    ($($(#[doc = $doc:literal])* async fn $name:ident($bed:ident, $order:ident, $gate:ident in $slots:expr) $body:block)*) => { $(
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            async fn check($bed: &TestBed, $order: &Order, $gate: &Semaphore) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let (order, gate) = (Order::default(), Arc::new(Semaphore::new(0)));
                let bed = slots($slots, &order, &gate).sqlite().await;
                check(&bed, &order, &gate).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn file() {
                let folder = Folder::new(concat!("priorities-", stringify!($name)));
                let (order, gate) = (Order::default(), Arc::new(Semaphore::new(0)));
                let bed = slots($slots, &order, &gate).on(&folder.url("fsm.db")).await;
                check(&bed, &order, &gate).await;
                assert_invariants_hold(&bed).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let (order, gate) = (Order::default(), Arc::new(Semaphore::new(0)));
                let bed = slots($slots, &order, &gate).postgres().await;
                check(&bed, &order, &gate).await;
                assert_invariants_hold(&bed).await;
            }
        }
    )* };
}

async fn send(bed: &TestBed, priority: Priority, count: usize) {
    let items = (0..count).map(|n| SendItem::new(format!("{priority}-{n:03}"), Run).priority(priority));
    for sent in bed.machine::<Parcel>().send_many(items).collect().await.unwrap() {
        sent.unwrap();
    }
}

/// The priorities in the order in which the calls succeeded.
fn priorities(order: &Order) -> Vec<Priority> {
    order.lock().unwrap().iter().map(|key| key.split('-').next().unwrap().parse().unwrap()).collect()
}

fn count(of: Priority, among: &[Priority]) -> usize {
    among.iter().filter(|priority| **priority == of).count()
}

/// Occupies a slot until the gate opens.
async fn hold(bed: &TestBed, key: &str) {
    bed.machine::<Parcel>().send(key, Hold).await.unwrap();
    while bed.machine::<Parcel>().get(key).await.unwrap().unwrap().call.unwrap().state != AttemptState::Executing {
        bed.run_until_idle().await;
    }
}

async fn call(bed: &TestBed, key: &str) -> (u32, Priority) {
    let call = bed.machine::<Parcel>().get(key).await.unwrap().unwrap().call.expect("a call is open");
    (call.attempt, call.priority)
}

with_slots! {
    /// All are due at the same time. The places that are kept for others are two of eight.
    async fn high_calls_start_before_normal_ones_and_low_ones_come_last(bed, order, _gate in 1) {
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            send(bed, priority, 12).await;
        }
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = priorities(order);
        let until_last = |of| &ran[..ran.iter().rposition(|priority| *priority == of).unwrap()];
        let (high, normal) = (until_last(Priority::High), until_last(Priority::Normal));
        assert!(high.len() <= 16 && count(Priority::Low, normal) <= 5, "{ran:?}");
        assert_eq!((ran.len(), ran.last()), (36, Some(&Priority::Low)), "{ran:?}");
    }

    async fn an_endless_stream_of_high_calls_stops_neither_normal_nor_low_ones(bed, order, _gate in 1) {
        send(bed, Priority::High, 80).await;
        send(bed, Priority::Normal, 10).await;
        send(bed, Priority::Low, 10).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = priorities(order);
        let shares = [Priority::High, Priority::Normal, Priority::Low].map(|priority| count(priority, &ran[..64]));
        assert_eq!(shares, [48, 8, 8], "of 64 starts: {ran:?}");
    }

    async fn claims_of_many_places_keep_the_same_share(bed, order, _gate in 16) {
        send(bed, Priority::High, 80).await;
        send(bed, Priority::Normal, 10).await;
        send(bed, Priority::Low, 10).await;
        bed.run_until_idle().await;
        bed.advance(WAIT).await;
        let ran = priorities(order);
        for priority in [Priority::Normal, Priority::Low] {
            let share = count(priority, &ran[..64]);
            assert!((5..=10).contains(&share), "{share} {priority} calls of 64: {ran:?}");
        }
    }

    async fn a_retry_keeps_the_priority_of_its_call(bed, order, _gate in 4) {
        let parcels = bed.machine::<Parcel>();
        parcels.send("t", Run).priority(Priority::Low).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(call(bed, "t").await, (2, Priority::Low));
        bed.advance(WAIT).await;
        let attempts = parcels.attempts("t").await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.priority).collect::<Vec<_>>(), [Priority::Low, Priority::Low]);
        assert_eq!(order.lock().unwrap().len(), 1);
    }

    /// The high event comes second, and stays second.
    async fn an_event_keeps_its_priority_in_the_inbox_and_its_place(bed, order, gate in 4) {
        let parcels = bed.machine::<Parcel>();
        hold(bed, "t").await;
        assert_eq!(parcels.send("t", Run).priority(Priority::High).await.unwrap().outcome, SendOutcome::Queued);
        gate.add_permits(1);
        bed.run_until_idle().await;
        assert_eq!(call(bed, "t").await, (2, Priority::High));
        bed.advance(WAIT).await;
        assert_eq!(*order.lock().unwrap(), ["t"]);
    }

    async fn a_delayed_send_keeps_its_priority(bed, _order, _gate in 4) {
        bed.machine::<Parcel>().send("t", Run).priority(Priority::High).after(WAIT).await.unwrap();
        bed.advance(WAIT).await;
        assert_eq!(call(bed, "t").await, (2, Priority::High));
    }

    async fn the_events_of_a_verb_have_priorities(bed, _order, _gate in 4) {
        bed.machine::<Parcel>().send("t", Tell { to: "o".into() }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(call(bed, "o-now").await, (2, Priority::High));
        bed.advance(WAIT).await;
        assert_eq!(call(bed, "o-later").await, (2, Priority::Low));
    }

    async fn a_second_send_with_the_same_dedup_id_does_not_change_the_priority(bed, _order, _gate in 4) {
        let parcels = bed.machine::<Parcel>();
        parcels.send("t", Run).dedup("once").priority(Priority::Low).await.unwrap();
        let again = parcels.send("t", Run).dedup("once").priority(Priority::High).await.unwrap();
        assert_eq!(again.outcome, SendOutcome::Duplicate);
        bed.run_until_idle().await;
        assert_eq!(call(bed, "t").await, (2, Priority::Low), "the first send counts");
    }

    /// A high call waits when the only slot becomes free, and a normal one is sent at that moment.
    async fn a_new_call_does_not_pass_high_calls_that_wait(bed, order, gate in 1) {
        let parcels = bed.machine::<Parcel>();
        hold(bed, "h").await;
        parcels.send("high-1", Note).priority(Priority::High).await.unwrap();
        gate.add_permits(1);
        parcels.settled("h").within(Duration::from_secs(30)).await.unwrap();
        parcels.send("normal-1", Note).await.unwrap();
        assert_eq!(parcels.get("normal-1").await.unwrap().unwrap().call.unwrap().state, AttemptState::Scheduled);
        bed.run_until_idle().await;
        assert_eq!(*order.lock().unwrap(), ["high-1", "normal-1"]);
        parcels.send("normal-2", Note).await.unwrap();
        parcels.settled("normal-2").within(Duration::from_secs(30)).await.unwrap();
    }

    async fn calls_that_wait_for_a_limit_start_by_priority(bed, order, _gate in 8) {
        let parcels = bed.machine::<Parcel>();
        for (key, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
            parcels.send(format!("{key}-1"), Pay).priority(priority).await.unwrap();
            parcels.send(format!("{key}-2"), Pay).priority(priority).await.unwrap();
        }
        bed.run_until_idle().await;
        let ran = order.lock().unwrap().clone();
        let (highs, last) = (ran[..2].iter().filter(|key| key.starts_with("high")).count(), ran[5].as_str());
        assert!(highs == 2 && last == "low-2", "{ran:?}");
    }
}

/// A process that works off normal calls has seen no other priority when a client writes a call of that priority.
mod a_process_that_works_off_normal_calls_soon_sees_a_high_or_low_call_of_another {
    use super::*;
    use fsm::{Client, Runtime};

    const NORMAL: usize = 400;
    /// Each claim has one slot, and one of sixteen reads all priorities: the first such claim gets a high call, and one of eight a low one. Some more
    /// calls run before the client reads their number.
    const MAX_CALLS_BEFORE: [(Priority, usize); 2] = [(Priority::High, 20), (Priority::Low, 132)];

    async fn check(url: &str) {
        for (priority, most) in MAX_CALLS_BEFORE {
            let (order, gate) = (Order::default(), Arc::new(Semaphore::new(0)));
            let builder = Runtime::builder().database(url).only::<Parcel>().data(Arc::clone(&order)).data(gate);
            let runtime = builder.limit("provider", Limit::concurrency(1)).concurrency(1).start().await.unwrap();
            let client = Client::connect(url).await.unwrap();
            let parcels = client.machine::<Parcel>();
            let normal = (0..NORMAL).map(|n| SendItem::new(format!("normal-beside-{priority}-{n:03}"), Note));
            assert!(parcels.send_many(normal).collect().await.unwrap().iter().all(Result::is_ok));
            while order.lock().unwrap().len() < 5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let key = format!("{priority}-1");
            parcels.send(&key, Note).priority(priority).await.unwrap();
            let before = order.lock().unwrap().len();
            assert!(before + most < NORMAL, "{before} calls had run before the {priority} one was written");
            parcels.settled(&key).within(Duration::from_secs(30)).await.unwrap();
            let ran = priorities(&order);
            let position = ran.iter().position(|ran| *ran == priority).unwrap();
            assert!(position <= before + most, "the {priority} call was number {position}, and written before number {before}: {ran:?}");
            runtime.shutdown().await.unwrap();
        }
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn file() {
        let folder = Folder::new("priorities-of-another");
        check(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = slots(1, &Order::default(), &Arc::new(Semaphore::new(0))).postgres().await;
        check(bed.url()).await;
    }
}

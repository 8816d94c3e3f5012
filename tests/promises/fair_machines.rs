//! Fairness: neither a machine with a flood of due calls nor a slow verb delays others.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::support::{Folder, assert_invariants_hold};

/// The names of the machines whose verbs succeeded, in that order.
type Order = Arc<Mutex<Vec<&'static str>>>;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pour;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Drip;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Wait;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Quick;

fn at_the_second_attempt(ctx: &Ctx<'_>, order: &Order, who: &'static str) -> Result {
    if ctx.attempt() == 1 {
        return Err(Failure::new("later, with all the others"));
    }
    order.lock().unwrap().push(who);
    Ok(())
}

#[verb]
#[retry(1, "10s")]
async fn poured(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Pour) -> Result {
    at_the_second_attempt(ctx, &order, "flood")
}
#[verb]
#[retry(1, "10s")]
async fn dripped(ctx: &mut Ctx<'_>, order: Data<Order>, _event: Drip) -> Result {
    at_the_second_attempt(ctx, &order, "trickle")
}
#[verb]
async fn held(gate: Data<Arc<Semaphore>>, _event: Wait) -> Result {
    let _open = gate.acquire().await;
    Ok(())
}

#[verb]
async fn passed(_event: Quick) -> Result {
    Ok(())
}

fsm! {
    machine Flood = "flood" {
        start poured;
        end poured;
    }
}
fsm! {
    machine Trickle = "trickle" {
        start dripped | held | passed;
        end dripped, held, passed;
    }
}

const FLOOD: usize = 1200;
const DRIPS: usize = 5;
const SLOTS: u32 = 8;

fn builder(order: &Order) -> TestBedBuilder {
    let builder = TestBed::builder().data(Arc::clone(order)).data(Arc::new(Semaphore::new(0)));
    builder.with(|builder| builder.concurrency(SLOTS)).only::<Flood>().only::<Trickle>()
}

/// All calls are due at the same time.
mod a_machine_with_a_flood_of_due_calls_does_not_starve_another {
    use super::*;

    async fn check(bed: &TestBed, order: &Order) {
        let (flood, trickle) = (bed.machine::<Flood>(), bed.machine::<Trickle>());
        for sent in join_all((0..FLOOD).map(|n| flood.send(format!("f-{n}"), Pour).into_future())).await {
            sent.unwrap();
        }
        for n in 0..DRIPS {
            trickle.send(format!("t-{n}"), Drip).await.unwrap();
        }
        bed.run_until_idle().await;
        bed.advance(Duration::from_secs(10)).await;
        let ended = order.lock().unwrap().clone();
        assert_eq!(ended.len(), FLOOD + DRIPS);
        let last = ended.iter().rposition(|who| *who == "trickle").unwrap();
        assert!(last < FLOOD / 10, "the last of {DRIPS} came {last}th among a flood of {FLOOD}");
        assert_invariants_hold(bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let order = Order::default();
        check(&builder(&order).sqlite().await, &order).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let order = Order::default();
        check(&builder(&order).postgres().await, &order).await;
    }
}

mod a_slow_verb_delays_no_attempt_that_was_committed_with_it {
    use super::*;

    async fn check(url: &str) {
        let gate = Arc::new(Semaphore::new(0));
        let builder = Runtime::builder().database(url).only::<Trickle>().data(Order::default()).data(Arc::clone(&gate));
        let runtime = builder.concurrency(SLOTS).start().await.unwrap();
        let trickle = runtime.machine::<Trickle>();
        // One batch of sends: three whose verbs wait, among others that do not.
        let key = |n: usize| format!("t-{n}");
        let slow = join_all((0..3).map(|n| trickle.send(key(n), Wait).into_future()));
        let quick = join_all((3..60).map(|n| trickle.send(key(n), Quick).into_future()));
        let (slow, quick) = futures_util::future::join(slow, quick).await;
        for sent in slow.into_iter().chain(quick) {
            sent.unwrap();
        }
        for n in 3..60 {
            trickle.settled(key(n)).within(Duration::from_secs(30)).await.unwrap();
        }
        for n in 0..3 {
            assert!(trickle.get(key(n)).await.unwrap().unwrap().call.is_some(), "it still waits");
        }
        gate.add_permits(3);
        for n in 0..3 {
            trickle.settled(key(n)).within(Duration::from_secs(30)).await.unwrap();
        }
        runtime.shutdown().await.unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("fair");
        check(&folder.url("fair.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let bed = builder(&Order::default()).postgres().await;
        check(bed.url()).await;
    }
}

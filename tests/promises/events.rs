//! The events of one instance run one at a time, in the order of their arrival. Those of different instances do not wait for each other.

use std::time::Duration;

use fsm::SendOutcome;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::payment::{OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

/// A counter that accepts numbers in one state and records them in the order in which it took them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Tape {
    numbers: Vec<u32>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Number(u32);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Countdown(u32);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stop;

#[verb]
async fn ready(_event: Begin) -> Result {
    Ok(())
}
#[verb]
#[retry("1s")]
async fn noted(record: &mut Tape, event: Number) -> Result {
    record.numbers.push(event.0);
    Ok(())
}
#[verb]
async fn counting(ctx: &mut Ctx<'_>, record: &mut Tape, event: Countdown) -> Result {
    record.numbers.push(event.0);
    match event.0 {
        0 => ctx.next(Stop)?,
        n => ctx.next(Countdown(n - 1))?,
    }
    Ok(())
}
#[verb]
async fn stopped(ctx: &mut Ctx<'_>, record: &mut Tape, _event: Stop) -> Result {
    if !record.numbers.is_empty() {
        ctx.send::<Counter>(format!("{}-copy", ctx.key()), Begin)?;
    }
    Ok(())
}

fsm! {
    machine Counter = "counter" {
        keeps Tape;
        start ready;
        any(ready, noted) -> noted;
        any(ready, noted, counting) -> counting | stopped;
        end stopped;
    }
}

fn counters() -> TestBedBuilder {
    TestBed::builder().only::<Counter>()
}

promise! {
    async fn events_of_one_instance_are_taken_in_the_order_in_which_they_came(bed in counters()) {
        let counters = bed.machine::<Counter>();
        counters.send("c", Begin).await.unwrap();
        for n in 0..40 {
            counters.send("c", Number(n)).await.unwrap();
        }
        bed.run_until_idle().await;
        let counter = counters.get("c").await.unwrap().unwrap();
        assert_eq!((counter.record.numbers, counter.version, counter.inbox_len), ((0..40).collect::<Vec<_>>(), 41, 0));
    }
}

promise! {
    async fn a_busy_instances_events_wait_and_survive_a_restart(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.send("o-1", paid_with("r")).await.unwrap().outcome, SendOutcome::Queued);
        assert_eq!(payments.send("o-1", OnlinePaymentCompleted).await.unwrap().outcome, SendOutcome::Queued);
        assert!(payments.send("o-1", paid_with("r")).await.unwrap_err().is_refused(), "`paid` takes no second payment");
        assert!(payments.send("o-2", checkout()).reject_if_busy().await.is_ok());
        let impatient = payments.send("o-1", crate::payment::Cancel { by: "me".into() }).reject_if_busy().await.unwrap_err();
        assert!(impatient.is_refused() || impatient.is_busy(), "{impatient}");
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().inbox_len, 2);
        bed.restart().await;
        bed.advance(Duration::from_secs(60)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.status, payment.version), (Some(PaymentState::Completed), Status::Completed, 3));
    }
}

promise! {
    async fn an_instance_in_error_keeps_its_inbox_for_after_the_retry(bed in failing(11)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        bed.advance(Duration::from_secs(86_400)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.inbox_len), (Status::Error, 1));
        assert_eq!(payments.send("o-1", OnlinePaymentCompleted).await.unwrap().outcome, SendOutcome::Queued);
        payments.retry("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Completed));
    }
}

promise! {
    async fn a_verb_leads_its_instance_on_in_the_same_commit(bed in counters()) {
        let counters = bed.machine::<Counter>();
        counters.send("c", Begin).await.unwrap();
        counters.send("c", Countdown(20)).await.unwrap();
        bed.run_until_idle().await;
        let counter = counters.get("c").await.unwrap().unwrap();
        assert_eq!((counter.state, counter.version), (Some(CounterState::Stopped), 23));
        assert_eq!(counter.record.numbers, (0..=20).rev().collect::<Vec<_>>());
        let copy = counters.get("c-copy").await.unwrap().unwrap();
        assert_eq!((copy.state, copy.version), (Some(CounterState::Ready), 1), "a verb's sends are committed with its transition");
    }
}

promise! {
    async fn a_send_to_a_full_inbox_is_an_error_that_says_busy(bed in counters().with(|builder| builder.inbox_limit(2))) {
        let counters = bed.machine::<Counter>();
        counters.send("c", Begin).await.unwrap();
        bed.run_until_idle().await;
        counters.pause("c").await.unwrap();
        for n in 0..3 {
            counters.send("c", Number(n)).await.unwrap();
        }
        let full = counters.send("c", Number(3)).await.unwrap_err();
        assert!(full.is_busy(), "{full}");
        counters.resume("c").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(counters.get("c").await.unwrap().unwrap().record.numbers, [0, 1, 2]);
    }
}

promise! {
    /// Neither a send nor a transition reads the events between the first and the last one.
    async fn a_commit_costs_the_same_however_many_events_wait(bed in counters().with(|builder| builder.inbox_limit(2000))) {
        let counters = bed.machine::<Counter>();
        let mut costs = Vec::new();
        for (key, waiting) in [("few", 20), ("many", 1000)] {
            counters.send(key, Begin).await.unwrap();
            bed.run_until_idle().await;
            counters.pause(key).await.unwrap();
            for n in 0..waiting {
                counters.send(key, Number(n)).await.unwrap();
            }
            let before = (bed.statements(), bed.rows());
            counters.send(key, Number(waiting)).await.unwrap();
            let sent = (bed.statements() - before.0, bed.rows() - before.1);

            counters.resume(key).await.unwrap();
            let before = bed.rows();
            bed.run_until_idle().await;
            let taken = (bed.rows() - before) / u64::from(waiting + 1);
            assert_eq!(counters.get(key).await.unwrap().unwrap().record.numbers.len() as u32, waiting + 1);
            println!("with {waiting} waiting: a send is {sent:?} statements and rows, and a transition {taken} rows");
            costs.push((sent, taken));
        }
        let [few, many] = costs[..] else { panic!("two costs: {costs:?}") };
        assert_eq!(few.0, many.0, "statements and rows of a send");
        assert!(many.0.1 < 16 && many.1 < 16, "rows of a send and of a transition: {costs:?}");
    }
}

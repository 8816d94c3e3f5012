//! Operations on an instance: those that are allowed, and those that are refused.

use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::payment::{Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

promise! {
    async fn a_retry_by_hand_runs_the_exhausted_call_again_with_a_fresh_budget(bed in failing(11)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(Duration::from_secs(86_400)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Error);
        payments.retry("o-1").reason("the gateway is back").await.unwrap();
        bed.run_until_idle().await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.status, payment.error), (Some(PaymentState::Created), Status::Running, None));
        let history: Vec<_> = payments.history("o-1").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(history.iter().any(|line| line.ends_with("retried: the gateway is back")), "{history:#?}");
    }
}

promise! {
    async fn a_retry_by_hand_is_refused_unless_the_call_failed_or_waits(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        assert!(payments.retry("o-1").await.unwrap_err().is_not_found());
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.retry("o-1").await.unwrap();
        bed.run_until_idle().await;
        let states: Vec<_> = payments.attempts("o-1").await.unwrap().iter().map(|attempt| attempt.state).collect();
        assert_eq!(states, [AttemptState::Error, AttemptState::Cancelled, AttemptState::Success]);
        let refused = payments.retry("o-1").await.unwrap_err();
        assert!(refused.is_not_allowed());
        assert_eq!(refused.to_string(), "`payment` `o-1` cannot be retried: its newest call, `created`, succeeded");
    }
}

promise! {
    async fn a_cancelled_instance_runs_nothing_more(bed in failing(99)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        payments.cancel("o-1", "fraud").await.unwrap();
        payments.cancel("o-1", "fraud").await.unwrap();
        bed.advance(Duration::from_secs(86_400)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.call, payment.inbox_len), (Status::Cancelled, None, 0));
        assert_eq!(payments.attempts("o-1").await.unwrap().len(), 2);
        assert!(payments.send("o-1", paid_with("r")).await.unwrap_err().is_refused());
        assert!(payments.retry("o-1").await.unwrap_err().is_not_allowed());
        let told = payments.history("o-1").await.unwrap();
        assert!(told.iter().any(|entry| entry.to_string().ends_with("cancelled: fraud")));
    }
}

promise! {
    async fn a_paused_instance_starts_no_attempt_until_it_is_resumed(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.pause("o-1").await.unwrap();
        bed.advance(Duration::from_secs(3600)).await;
        assert_eq!(payments.attempts("o-1").await.unwrap().len(), 2);
        assert!(payments.get("o-1").await.unwrap().unwrap().paused);
        payments.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
    }
}

promise! {
    async fn skip_ends_the_call_and_the_instance_stays_in_its_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Error);
        payments.skip("o-1").await.unwrap();
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.state), (Status::Running, Some(PaymentState::Created)));
        payments.send("o-1", paid_with("r-2")).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Paid));
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Brew;

/// Runs until it is cancelled, and signals that it has started.
#[verb]
#[retry(9, "1s")]
async fn brewed(ctx: &mut Ctx<'_>, begun: Data<Arc<Notify>>, _event: Brew) -> Result {
    begun.notify_one();
    ctx.cancelled().await;
    Ok(())
}

fsm! {
    machine Kettle = "kettle" {
        start brewed;
        end brewed;
    }
}

mod cancelling_what_executes_is_cooperative_and_the_first_commit_wins {
    use super::*;

    async fn check(bed: TestBed, begun: Arc<Notify>) {
        let kettles = bed.machine::<Kettle>();
        kettles.send("k", Brew).await.unwrap();
        begun.notified().await;
        kettles.cancel("k", "no tea").actor("ada").await.unwrap();
        bed.run_until_idle().await;
        let kettle = kettles.get("k").await.unwrap().unwrap();
        assert_eq!((kettle.status, kettle.state, kettle.version), (Status::Cancelled, None, 0));
        let told: Vec<_> = kettles.history("k").await.unwrap().iter().map(|entry| entry.to_string()).collect();
        assert!(told.iter().any(|line| line.ends_with("cancelled by ada: no tea")), "{told:#?}");
        assert!(told.iter().any(|line| line.contains("late: attempt 1 of `brewed` reported success after it was closed")), "{told:#?}");
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let begun = Arc::new(Notify::new());
        check(TestBed::builder().only::<Kettle>().data(Arc::clone(&begun)).sqlite().await, begun).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let begun = Arc::new(Notify::new());
        check(TestBed::builder().only::<Kettle>().data(Arc::clone(&begun)).postgres().await, begun).await;
    }
}

/// The verb runs in one process, and the operator uses another one.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_verb_is_told_of_a_cancel_from_another_process() {
    let folder = crate::support::Folder::new("cancel-elsewhere");
    let (url, begun) = (folder.url("kettle.db"), Arc::new(Notify::new()));
    let builder = Runtime::builder().database(&url).only::<Kettle>().data(Arc::clone(&begun)).lease(Duration::from_millis(300));
    let runtime = builder.start().await.unwrap();
    runtime.machine::<Kettle>().send("k", Brew).await.unwrap();
    begun.notified().await;
    let client = Client::connect(&url).await.unwrap();
    client.machine::<Kettle>().cancel("k", "no tea").await.unwrap();
    // The shutdown waits for the verb, which ends only when it is notified of the cancellation.
    runtime.shutdown().await.unwrap();
    let told = client.machine::<Kettle>().history("k").await.unwrap();
    assert!(told.iter().any(|entry| entry.to_string().contains("late: attempt 1 of `brewed` reported success")), "{told:#?}");
}

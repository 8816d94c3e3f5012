//! Events that interrupt: they do not wait for a retry, nor for an operator.

use fsm::SendOutcome;
use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

use crate::subscription::{Cancel, DAY, HOUR, Note, Renew, Sub, SubState, Suspend, activated, attempts, state, subs, timeline};
use crate::support::{Folder, promise};

/// A poll interval so long that the test passes only if the process is notified.
const AN_HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tell;

#[verb]
async fn told(ctx: &mut Ctx<'_>, _event: Tell) -> Result {
    ctx.send::<Sub>("s-1", Suspend)?;
    Ok(())
}

fsm! {
    /// Suspends a subscription.
    machine Manager = "interrupting-manager" {
        start told;
        end told;
    }
}

fn failing(failures: u32) -> Renew {
    Renew { failures, ..Renew::default() }
}

/// Each attempt waits until it is cancelled, and the first `failures` attempts fail then.
fn waiting(failures: u32) -> Renew {
    Renew { failures, waits: true, ..Renew::default() }
}

fn note(text: &str) -> Note {
    Note { text: text.into() }
}

async fn of_renewed(subs: &fsm::Handle<Sub>, key: &str) -> Vec<(u32, AttemptState)> {
    let attempts = attempts(subs, key).await.into_iter();
    attempts.filter(|(verb, ..)| verb == "renewed").map(|(_, number, state)| (number, state)).collect()
}

/// Waits until nothing executes; the clock does not move.
async fn ended(bed: &TestBed, subs: &fsm::Handle<Sub>, key: &str) -> (Option<SubState>, Status) {
    bed.run_until_idle().await;
    state(subs, key).await
}

promise! {
    async fn an_event_that_interrupts_is_taken_at_once_while_a_call_waits_for_a_retry(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", failing(9)).await.unwrap();
        bed.run_until_idle().await;
        let sent = subs.send("s-1", Cancel).reject_if_busy().await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Started);
        assert_eq!(ended(bed, &subs, "s-1").await, (Some(SubState::Cancelled), Status::Completed));
        assert_eq!(of_renewed(&subs, "s-1").await, [(1, AttemptState::Error), (2, AttemptState::Cancelled)]);
        let timeline = timeline(&subs, "s-1").await;
        assert!(timeline.contains(&"interrupted: `Cancel` ended the call of `renewed` after attempt 2".to_owned()), "{timeline:#?}");
    }
}

promise! {
    async fn an_event_that_interrupts_is_taken_at_once_while_the_instance_is_in_error(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", failing(9)).await.unwrap();
        bed.advance(10 * DAY).await;
        assert_eq!(state(&subs, "s-1").await, (Some(SubState::Active), Status::Error));
        subs.send("s-1", Cancel).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await, (Some(SubState::Cancelled), Status::Completed));
        let sub = subs.get("s-1").await.unwrap().unwrap();
        assert_eq!(sub.error, None);
        let timeline = timeline(&subs, "s-1").await;
        assert!(timeline.contains(&"interrupted: `Cancel` ended the call of `dunned` after attempt 6".to_owned()), "{timeline:#?}");
    }
}

promise! {
    async fn the_catch_verb_of_an_interrupted_call_does_not_run(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(9)).await.unwrap();
        subs.send("s-1", Cancel).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await.0, Some(SubState::Cancelled));
        assert!(attempts(&subs, "s-1").await.iter().all(|(verb, ..)| verb != "dunned"));

        let subs = activated(bed, "s-2").await;
        subs.send("s-2", failing(9)).await.unwrap();
        bed.advance(2 * HOUR).await;
        let last = attempts(&subs, "s-2").await.pop().unwrap();
        assert_eq!(last, ("dunned".into(), 2, AttemptState::Scheduled), "the catch verb waits for its own retry");
        subs.send("s-2", Cancel).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-2").await.0, Some(SubState::Cancelled));
        assert!(attempts(&subs, "s-2").await.contains(&("dunned".into(), 2, AttemptState::Cancelled)));
    }
}

promise! {
    async fn a_running_attempt_is_notified_of_an_interrupting_event_and_its_success_counts(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(0)).await.unwrap();
        let sent = subs.send("s-1", Cancel).await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Queued);
        assert_eq!(ended(bed, &subs, "s-1").await, (Some(SubState::Refunded), Status::Completed), "`Cancel` fits `renewed` too");
        assert_eq!(of_renewed(&subs, "s-1").await, [(1, AttemptState::Success)]);
    }
}

promise! {
    async fn a_running_attempt_is_notified_of_an_interrupting_event_that_a_verb_sends(bed in subs().only::<Manager>()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(9)).await.unwrap();
        // The tag of this key is the key of the subscription: they are in one partition, and the event is in the commit.
        bed.machine::<Manager>().send("{s-1}/m", Tell).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), ended(bed, &subs, "s-1")).await.expect("the attempt is told");
        assert_eq!(ended, (Some(SubState::Suspended), Status::Completed));
    }
}

promise! {
    async fn an_event_that_interrupts_and_does_not_fit_after_the_success_is_rejected(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(0)).await.unwrap();
        subs.send("s-1", Suspend).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await, (Some(SubState::Renewed), Status::Running));
        let timeline = timeline(&subs, "s-1").await;
        assert!(timeline.iter().any(|line| line.starts_with("rejected: ") && line.contains("`Suspend`")), "{timeline:#?}");
        assert!(subs.send("s-1", Suspend).await.unwrap_err().is_refused());
    }
}

promise! {
    async fn an_attempt_that_fails_is_not_retried_if_an_event_interrupts_its_call(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(9)).await.unwrap();
        subs.send("s-1", Suspend).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await, (Some(SubState::Suspended), Status::Completed));
        assert_eq!(of_renewed(&subs, "s-1").await, [(1, AttemptState::Error)]);
        let timeline = timeline(&subs, "s-1").await;
        assert!(timeline.contains(&"interrupted: `Suspend` ended the call of `renewed` after attempt 1".to_owned()), "{timeline:#?}");
        assert!(!timeline.iter().any(|line| line.contains("exhausted")), "{timeline:#?}");
    }
}

promise! {
    async fn an_event_that_interrupts_goes_before_those_that_wait(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", waiting(0)).await.unwrap();
        subs.send("s-1", note("late")).await.unwrap();
        subs.send("s-1", note("later")).await.unwrap();
        subs.send("s-1", Cancel).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await.0, Some(SubState::Refunded));
        let sub = subs.get("s-1").await.unwrap().unwrap();
        assert_eq!(sub.record.notes, [] as [&str; 0]);
        let rejected = timeline(&subs, "s-1").await.into_iter().filter(|line| line.starts_with("rejected: ")).count();
        assert_eq!(rejected, 2, "the instance has ended when the turn of the notes comes");

        let subs = activated(bed, "s-2").await;
        subs.send("s-2", failing(9)).await.unwrap();
        bed.run_until_idle().await;
        subs.send("s-2", note("waits")).await.unwrap();
        subs.send("s-2", Cancel).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-2").await.0, Some(SubState::Cancelled));
    }
}

promise! {
    async fn an_event_that_interrupts_is_like_any_other_while_the_instance_rests(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", Renew { failures: 1, goes_on: true, ..Renew::default() }).await.unwrap();
        bed.run_until_idle().await;
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Active));
        subs.send("s-1", Suspend).await.unwrap();
        assert_eq!(ended(bed, &subs, "s-1").await.0, Some(SubState::Suspended));
        assert!(!timeline(&subs, "s-1").await.iter().any(|line| line.starts_with("interrupted")));
    }
}

/// The limit from a cancellation to the end of its instance, on an otherwise idle machine.
const MILLISECONDS: Duration = Duration::from_millis(100);
/// The number of cancellations. Other programs may delay some of them, but hardly all.
const CANCELLATIONS: usize = 20;

/// Each instance waits for a retry in an hour when it is cancelled. Only the event wakes the runtime.
async fn cancelled_within_milliseconds(url: &str) {
    let runtime = Runtime::builder().database(url).only::<Sub>().poll_interval(AN_HOUR).lease(AN_HOUR).start().await.unwrap();
    let subs = runtime.machine::<Sub>();
    let mut took = Vec::new();
    for key in (0..CANCELLATIONS).map(|n| format!("s-{n}")) {
        for days in [0, 14] {
            subs.send(&key, crate::subscription::Step { trial_days: days }).await.unwrap();
            subs.settled(&key).within(Duration::from_secs(60)).await.unwrap();
        }
        subs.send(&key, failing(9)).await.unwrap();
        let waits_for_a_retry = async || subs.get(&key).await.unwrap().unwrap().call.is_some_and(|call| call.attempt == 2);
        while !waits_for_a_retry().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let begun = std::time::Instant::now();
        subs.send(&key, Cancel).await.unwrap();
        let sub = subs.settled(&key).within(Duration::from_secs(60)).await.unwrap();
        took.push(begun.elapsed());
        assert_eq!((sub.state, sub.status), (Some(SubState::Cancelled), Status::Completed));
        assert_eq!(of_renewed(&subs, &key).await, [(1, AttemptState::Error), (2, AttemptState::Cancelled)]);
    }
    took.sort();
    println!("cancelled within {:?} to {:?}", took[0], took[CANCELLATIONS - 1]);
    assert!(took[0] < MILLISECONDS, "{took:?}");
    runtime.shutdown().await.unwrap();
}

mod a_cancellation_during_a_retry_ends_the_instance_within_milliseconds {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("interrupting-milliseconds");
        cancelled_within_milliseconds(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let database = subs().postgres().await;
        cancelled_within_milliseconds(database.url()).await;
    }
}

/// The sender is a separate client, which knows the attempt only from the database.
async fn notified_by_another_process(url: &str) {
    let runtime = Runtime::builder().database(url).only::<Sub>().poll_interval(AN_HOUR).lease(AN_HOUR).start().await.unwrap();
    let client = Client::connect(url).await.unwrap();
    let (here, elsewhere) = (runtime.machine::<Sub>(), client.machine::<Sub>());
    for days in [0, 14] {
        here.send("s-1", crate::subscription::Step { trial_days: days }).await.unwrap();
        here.settled("s-1").within(Duration::from_secs(60)).await.unwrap();
    }
    here.send("s-1", waiting(9)).await.unwrap();
    elsewhere.send("s-1", Suspend).await.unwrap();
    let sub = here.settled("s-1").within(Duration::from_secs(60)).await.unwrap();
    assert_eq!((sub.state, sub.status), (Some(SubState::Suspended), Status::Completed));
    runtime.shutdown().await.unwrap();
}

mod a_verb_is_told_of_an_event_that_another_process_accepted {
    use super::*;

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("interrupting-elsewhere");
        notified_by_another_process(&folder.url("fsm.db")).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let database = subs().postgres().await;
        notified_by_another_process(database.url()).await;
    }
}

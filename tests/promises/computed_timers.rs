//! Computed timers: a function of the record returns the time at which the timer of a state is due.

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

use crate::subscription::{DAY, HOUR, Renew, Step, SubState, activated, attempts, state, subs};
use crate::support::promise;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Promise {
    until: Timestamp,
}
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Due {
    until: Timestamp,
}

fn until(due: &Due) -> Timestamp {
    due.until
}

#[verb]
async fn promised(record: &mut Due, event: Promise) -> Result {
    record.until = event.until;
    Ok(())
}

#[verb]
async fn broken(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Word = "computed-word" {
        keeps Due;
        start promised;
        promised after until -> broken;
        end broken;
    }
}

promise! {
    async fn a_computed_timer_is_due_after_the_duration_that_its_function_returns(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        bed.advance(14 * DAY - HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Active));
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Expired));
    }
}

promise! {
    async fn the_function_of_a_computed_timer_runs_whenever_the_state_is_entered(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", Renew { goes_on: true, ..Renew::default() }).await.unwrap();
        bed.advance(7 * DAY - HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Active));
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Expired), "the trial is 7 days now");
    }
}

promise! {
    async fn a_computed_timer_is_due_at_the_point_in_time_that_its_function_returns(bed in TestBed::builder().only::<Word>()) {
        let words = bed.machine::<Word>();
        words.send("w-1", Promise { until: bed.now() + DAY }).await.unwrap();
        words.send("past", Promise { until: Timestamp::default() }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(words.get("past").await.unwrap().unwrap().state, Some(WordState::Broken), "a time that has passed is due at once");
        bed.advance(DAY - HOUR).await;
        assert_eq!(words.get("w-1").await.unwrap().unwrap().state, Some(WordState::Promised));
        bed.advance(HOUR).await;
        assert_eq!(words.get("w-1").await.unwrap().unwrap().state, Some(WordState::Broken));
    }
}

promise! {
    async fn a_panic_in_the_function_of_a_timer_is_a_failed_attempt(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-2", Step { trial_days: 0 }).await.unwrap();
        bed.run_until_idle().await;
        subs.send("s-2", Step { trial_days: 5000 }).await.unwrap();
        bed.advance(DAY).await;
        let sub = subs.get("s-2").await.unwrap().unwrap();
        assert_eq!((sub.state, sub.status, sub.record.trial_days), (Some(SubState::Opened), Status::Error, 0));
        let error = sub.error.unwrap();
        assert!(error.contains("`trial_length`") && error.contains("no trial is that long"), "{error}");
        let failed = attempts(&subs, "s-2").await.into_iter().filter(|(_, _, state)| *state == AttemptState::Error).count();
        assert_eq!(failed, 2, "it is retried by the policy");
    }
}

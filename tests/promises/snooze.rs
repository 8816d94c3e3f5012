//! A snooze: nothing failed, and the call runs again later. It uses no retry and is counted separately from failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{HistoryEvent, OpenCall};
use serde::{Deserialize, Serialize};

use crate::payment::GatewayError;
use crate::support::promise;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fetch {
    /// The attempts that snooze for a minute.
    snoozes: u32,
    /// The attempts that fail after these.
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hurry;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Once;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Report {
    reads: u32,
}

#[verb]
#[retry(2, "5s", "1h", backoff = 2.0)]
async fn fetched(ctx: &mut Ctx<'_>, report: &mut Report, seen: Data<Arc<AtomicU32>>, event: Fetch) -> Result {
    seen.fetch_add(1, Ordering::SeqCst);
    report.reads += 1;
    ctx.send::<Reports>("told", Told)?;
    if ctx.attempt() <= event.snoozes {
        return Err(Failure::snooze(MINUTE));
    }
    if ctx.attempt() <= event.snoozes + event.failures { Err(GatewayError("down".into()).into()) } else { Ok(()) }
}

#[verb]
#[retry("5s", within = "3m")]
async fn hurried(_event: Hurry) -> Result {
    Err(Failure::snooze(MINUTE))
}

#[verb]
async fn plain(ctx: &mut Ctx<'_>, _event: Once) -> Result {
    if ctx.attempt() < 4 { Err(Failure::snooze(MINUTE)) } else { Ok(()) }
}

#[verb]
async fn told(_event: Told) -> Result {
    Ok(())
}

fsm! {
    machine Reports = "reports" {
        keeps Report;
        start fetched | hurried | plain | told;
        end fetched, hurried, plain, told;
    }
}

fn reports() -> TestBedBuilder {
    TestBed::builder().only::<Reports>().data(Arc::new(AtomicU32::new(0)))
}

async fn call(bed: &TestBed, key: &str) -> OpenCall {
    bed.machine::<Reports>().get(key).await.unwrap().unwrap().call.unwrap()
}

promise! {
    async fn a_snooze_uses_no_retry_and_the_backoff_does_not_grow(bed in reports()) {
        let reports = bed.machine::<Reports>();
        reports.send("r", Fetch { snoozes: 3, failures: 2 }).await.unwrap();
        bed.run_until_idle().await;
        let waits = call(bed, "r").await;
        assert_eq!((waits.attempt, waits.snoozes, waits.retries_left, waits.next_at - bed.now()), (2, 1, Some(2), MINUTE));
        assert_eq!(waits.last_error, None, "nothing failed");
        bed.restart().await;
        bed.advance(3 * MINUTE).await;
        let retried = call(bed, "r").await;
        assert_eq!((retried.attempt, retried.snoozes, retried.retries_left), (5, 3, Some(1)));
        assert_eq!((retried.next_at - bed.now(), retried.last_error.as_deref()), (Duration::from_secs(5), Some("down")));
        assert_eq!(retried.attempt_of(), "5 of 6");
        bed.advance(Duration::from_secs(15)).await;
        let report = reports.get("r").await.unwrap().unwrap();
        assert_eq!((report.state, report.status), (Some(ReportsState::Fetched), Status::Completed));
        assert_eq!(report.record.reads, 1, "what the attempts before did to the record was forgotten");
    }
}

promise! {
    async fn a_snoozed_attempt_is_in_the_history_and_its_requests_are_dropped(bed in reports()) {
        let reports = bed.machine::<Reports>();
        reports.send("r", Fetch { snoozes: 1, failures: 0 }).await.unwrap();
        bed.run_until_idle().await;
        assert!(reports.get("told").await.unwrap().is_none());
        bed.advance(MINUTE).await;
        assert!(reports.get("told").await.unwrap().is_some());
        let states: Vec<_> = reports.attempts("r").await.unwrap().iter().map(|attempt| (attempt.state, attempt.snoozes)).collect();
        assert_eq!(states, [(AttemptState::Snoozed, 0), (AttemptState::Success, 1)]);
        let history = reports.history("r").await.unwrap();
        let texts: Vec<_> = history.iter().map(|entry| entry.to_string().split_once("  ").unwrap().1.to_owned()).collect();
        assert_eq!(texts[1], "attempt 1 of `fetched`: snoozed after 0s");
        assert_eq!(texts[2], "attempt 2 of `fetched` is scheduled for 2030-01-01T00:01:00Z, in 1m");
        assert!(!history.iter().any(|entry| matches!(entry.event, HistoryEvent::Exhausted { .. })), "{texts:#?}");
    }
}

promise! {
    async fn a_snooze_needs_no_policy(bed in reports()) {
        let reports = bed.machine::<Reports>();
        reports.send("r", Once).await.unwrap();
        bed.advance(2 * MINUTE).await;
        assert_eq!((call(bed, "r").await.attempt, call(bed, "r").await.snoozes), (4, 3));
        bed.advance(MINUTE).await;
        assert_eq!(reports.get("r").await.unwrap().unwrap().status, Status::Completed);
    }
}

promise! {
    async fn within_bounds_the_snoozes_of_a_call(bed in reports()) {
        let reports = bed.machine::<Reports>();
        reports.send("r", Hurry).await.unwrap();
        bed.advance(10 * MINUTE).await;
        let report = reports.get("r").await.unwrap().unwrap();
        assert_eq!(report.status, Status::Error);
        assert_eq!(report.error.as_deref(), Some("snoozed for 1m, which ends later than 3m after the first attempt"));
        let states: Vec<_> = reports.attempts("r").await.unwrap().iter().map(|attempt| attempt.state).collect();
        assert_eq!(states, [AttemptState::Snoozed, AttemptState::Snoozed, AttemptState::Snoozed, AttemptState::Error]);
        reports.retry("r").await.unwrap();
        bed.run_until_idle().await;
        let again = call(bed, "r").await;
        assert_eq!((again.attempt, again.snoozes), (6, 4), "a retry by hand counts `within` from now");
    }
}

//! The metrics of a runtime: each attempt, retry, transition and exhausted call counts once, by its machine and verb, and no label contains
//! a key.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::testing::TestBed;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};

use crate::durable::{Load, Ship, Stall, once, stalling};
use crate::hostile_database::own_cluster;

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Go {
    how: String,
}

#[verb(timeout = "50ms")]
#[retry(2, "1ms")]
async fn tried(ctx: &mut Ctx<'_>, event: Go) -> Result {
    match (event.how.as_str(), ctx.attempt()) {
        ("fails", _) | ("fails once", 1) => Err(Failure::new("no")),
        ("panics once", 1) => panic!("an accident"),
        ("hangs once", 1) => {
            std::future::pending::<()>().await;
            Ok(())
        }
        _ => Ok(()),
    }
}

fsm! {
    /// One verb whose event says how it ends.
    machine Metered = "metered" {
        start tried;
        end tried;
    }
}

/// The recorder of this process. There can be one.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().expect("this process has no other recorder"))
}

/// Returns the value of the series of that name whose labels contain all of `labels`, or 0.
fn value(name: &str, labels: &[&str]) -> f64 {
    let text = recorder().render();
    let series = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")));
    series
        .filter(|line| labels.iter().all(|label| line.contains(label)))
        .map(|line| line.rsplit(' ').next().expect("a line has a value").parse::<f64>().expect("a value is a number"))
        .sum()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}\n{}", recorder().render());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const ALL: &[&str] = &["machine=\"metered\"", "verb=\"tried\""];

fn outcome(name: &str, word: &str) -> f64 {
    let label = format!("outcome=\"{word}\"");
    value(name, &[ALL[0], ALL[1], &label])
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_retry_and_transition_counts_once() {
    recorder();
    let builder = Runtime::builder().database("sqlite::memory:").only::<Metered>().concurrency(7);
    let runtime = builder.start().await.unwrap();
    let metered = runtime.machine::<Metered>();
    for how in ["succeeds", "fails once", "panics once", "hangs once", "fails"] {
        metered.send(how, Go { how: how.to_owned() }).await.unwrap();
    }
    for how in ["succeeds", "fails once", "panics once", "hangs once", "fails"] {
        metered.settled(how).within(LIMIT).await.unwrap();
    }
    until("all that was committed is counted", || outcome("fsm_transitions_total", "success") + value("fsm_exhausted_total", ALL) >= 5.0)
        .await;

    // One event succeeds at once, three fail once in three ways and then succeed, and one fails three times.
    let attempts = |word| outcome("fsm_attempts_total", word);
    assert_eq!((attempts("success"), attempts("error"), attempts("panic"), attempts("timeout")), (4.0, 4.0, 1.0, 1.0));
    assert_eq!((attempts("lost"), attempts("released")), (0.0, 0.0));
    assert_eq!((outcome("fsm_transitions_total", "success"), outcome("fsm_transitions_total", "exhausted")), (4.0, 1.0));
    assert_eq!((value("fsm_retries_scheduled_total", ALL), value("fsm_exhausted_total", ALL)), (5.0, 1.0));
    assert_eq!(value("fsm_attempt_duration_seconds_count", ALL), 10.0);
    assert_eq!(value("fsm_queue_lag_seconds_count", ALL), 10.0);
    assert!(value("fsm_attempt_duration_seconds_sum", ALL) >= 0.05, "one of them took its timeout of 50 ms");
    // There are 5 sends and 10 completions, and some share a commit.
    assert!((1.0..=15.0).contains(&value("fsm_commit_duration_seconds_count", &[])));
    assert_eq!(value("fsm_commit_batch_size_sum", &[]), 15.0);

    until("the observer has looked", || value("fsm_worker_slots", &[]) == 7.0).await;
    until("the observer has counted", || value("fsm_workers", &[]) == 1.0).await;
    assert!(recorder().render().contains("fsm_due_calls{machine=\"metered\"}"));
    assert!(recorder().render().contains("fsm_build_info{version="));
    assert!(!recorder().render().contains("panics once"), "no label contains a key");
    runtime.shutdown().await.unwrap();
}

mod a_lost_attempt_counts_as_lost {
    use super::*;

    async fn check(bed: &TestBed, stall: &Stall) {
        bed.machine::<Ship>().send("s-1", Load).await.unwrap();
        stall.entered.notified().await;
        bed.restart().await;
        bed.advance(Duration::from_secs(60)).await;
        assert!(value("fsm_attempts_total", &["outcome=\"lost\"", "verb=\"loading\""]) >= 1.0);
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        recorder();
        let stall = once();
        check(&stalling(&stall).sqlite().await, &stall).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        recorder();
        let stall = once();
        check(&stalling(&stall).postgres().await, &stall).await;
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_a_shutdown_gives_up_counts_as_released() {
    recorder();
    let stall = once();
    let builder = Runtime::builder().database("sqlite::memory:").only::<Ship>().data(Arc::clone(&stall));
    let runtime = builder.shutdown_timeout(Duration::from_millis(50)).start().await.unwrap();
    runtime.machine::<Ship>().send("s", Load).await.unwrap();
    stall.entered.notified().await;
    runtime.shutdown().await.unwrap();
    assert!(value("fsm_attempts_total", &["outcome=\"released\"", "verb=\"loading\""]) >= 1.0);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_database_counts_failed_heartbeats_and_errors_by_kind() {
    recorder();
    let Some(mut cluster) = own_cluster() else { return };
    let runtime =
        Runtime::builder().database(cluster.url()).only::<Ship>().data(once()).lease(Duration::from_secs(2)).start().await.unwrap();
    until("the lease is renewed", || value("fsm_lease_renewals_total", &["outcome=\"success\""]) >= 1.0).await;
    cluster.stop().unwrap();
    until("heartbeats fail", || value("fsm_lease_renewals_total", &["outcome=\"error\""]) >= 1.0).await;
    // The sends keep the database busy. Their callers get errors.
    let ships = runtime.machine::<Ship>();
    let sends = tokio::spawn(async move { while ships.send("s", Load).await.is_err() {} });
    until("errors are counted", || value("fsm_database_errors_total", &["kind=\"unavailable\""]) >= 1.0).await;
    cluster.start().unwrap();
    sends.await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[test]
fn the_guide_lists_every_metric_with_its_kind_and_meaning() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/src/observability.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `fsm_")).collect();
    let wanted: Vec<String> =
        fsm::METRICS.iter().map(|(name, kind, text)| format!("| `{name}` | {} | {text} |", format!("{kind:?}").to_lowercase())).collect();
    assert_eq!(rows, wanted);
}

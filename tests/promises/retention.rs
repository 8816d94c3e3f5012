//! Retention: instances that ended long ago are deleted with all their rows. Rows that a live instance needs are never deleted.

use std::time::Duration;

use fsm::SendOutcome;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::sql_runner::{SqlRunner, run};
use crate::support::promise;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Step {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rest {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Climb {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Finish;

async fn remembered(ctx: &mut Ctx<'_>, failures: u32) -> Result {
    ctx.once("ticket", async { Ok::<_, Failure>(7) }).await?;
    if ctx.attempt() <= failures { Err(Failure::new(format!("attempt {} found no way", ctx.attempt()))) } else { Ok(()) }
}

#[verb]
#[retry(1, "5s")]
async fn begun(ctx: &mut Ctx<'_>, event: Begin) -> Result {
    remembered(ctx, event.failures).await
}
#[verb]
#[retry(1, "40d")]
async fn walking(ctx: &mut Ctx<'_>, event: Step) -> Result {
    remembered(ctx, event.failures).await
}
/// Is retried daily, without a limit.
#[verb]
#[retry("1d")]
async fn resting(ctx: &mut Ctx<'_>, event: Rest) -> Result {
    if ctx.attempt() <= event.failures { Err(Failure::new(format!("attempt {} found no inn", ctx.attempt()))) } else { Ok(()) }
}
#[verb]
#[retry(1, "1d", catch = found)]
async fn climbing(ctx: &mut Ctx<'_>, event: Climb) -> Result {
    if ctx.attempt() <= event.failures { Err(Failure::new("fell")) } else { Ok(()) }
}
#[verb]
async fn found(_caught: Caught<Climb>) -> Result {
    Ok(())
}
#[verb]
async fn arrived(_event: Finish) -> Result {
    Ok(())
}

fsm! {
    machine Walk = "walk" {
        start begun;
        any(begun, walking, resting, climbing) -> walking | resting | climbing | arrived;
        end arrived;
    }
}

fn walks() -> TestBedBuilder {
    TestBed::builder().only::<Walk>().only::<SqlRunner>().with(|builder| builder.retention(30 * DAY))
}

/// Returns the number of rows of instances in each table, without the rows of the sql_runner.
async fn rows(bed: &TestBed) -> Vec<(&'static str, i64)> {
    let mut rows = Vec::new();
    for (table, of) in [
        ("fsm_instances", "machine <> 'sql_runner'"),
        ("fsm_async_calls", "machine <> 'sql_runner'"),
        ("fsm_once", "true"),
        ("fsm_requests", "true"),
        ("fsm_history", "true"),
        ("fsm_timers", "true"),
    ] {
        rows.push((table, run(bed, format!("select count(*) from {table} where {of}")).await.unwrap()));
    }
    rows
}

promise! {
    async fn instances_that_ended_before_the_retention_are_deleted_with_all_their_rows(bed in walks()) {
        let walks = bed.machine::<Walk>();
        for n in 0..250 {
            let key = format!("w-{n}");
            walks.send(&key, Begin { failures: 0 }).dedup("begin").await.unwrap();
            walks.send(&key, Step { failures: 0 }).await.unwrap();
            match n % 2 {
                0 => drop(walks.send(&key, Finish).await.unwrap()),
                _ => walks.cancel(&key, "enough").await.unwrap(),
            }
        }
        bed.advance(30 * DAY).await;
        let again = walks.send("w-0", Begin { failures: 0 }).dedup("begin").await.unwrap();
        assert_eq!(again.outcome, SendOutcome::Duplicate, "the first answer, although the instance has ended");
        assert_eq!(rows(bed).await[0], ("fsm_instances", 250));

        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(rows(bed).await.iter().map(|(_, count)| count).sum::<i64>(), 0, "{:?}", rows(bed).await);
        assert!(walks.get("w-0").await.unwrap().is_none());
        let anew = walks.send("w-0", Begin { failures: 0 }).dedup("begin").await.unwrap();
        assert_eq!(anew.outcome, SendOutcome::Started, "the key can be used again");
        bed.run_until_idle().await;
        assert_eq!(walks.get("w-0").await.unwrap().unwrap().version, 1);
    }
}

promise! {
    async fn nothing_that_a_live_instance_needs_is_deleted(bed in walks()) {
        let walks = bed.machine::<Walk>();
        for key in ["rests", "in-error", "waits", "delayed", "paused"] {
            walks.send(key, Begin { failures: u32::from(key == "waits") }).dedup("begin").await.unwrap();
            bed.advance(Duration::from_secs(5)).await;
            walks.send(key, Step { failures: 0 }).await.unwrap();
        }
        walks.send("in-error", Step { failures: 9 }).await.unwrap();
        bed.advance(41 * DAY).await;
        walks.send("waits", Step { failures: 1 }).await.unwrap();
        walks.pause("paused").reason("holidays").await.unwrap();
        walks.send("paused", Finish).await.unwrap();
        walks.send("delayed", Finish).after(60 * DAY).await.unwrap();
        walks.send("delayed", Finish).await.unwrap();
        bed.advance(35 * DAY).await;

        let in_error = walks.get("in-error").await.unwrap().unwrap();
        assert_eq!((in_error.status, in_error.error.as_deref()), (Status::Error, Some("attempt 2 found no way")));
        assert_eq!(walks.attempts("in-error").await.unwrap().len(), 2, "its newest call, which may be run again");
        assert_eq!(walks.attempts("rests").await.unwrap().len(), 1, "its newest call");
        assert_eq!(walks.attempts("waits").await.unwrap().len(), 2, "its open call");
        let once = async |key: &str| {
            let text = format!(
                "select count(*) from fsm_once o join fsm_instances i on i.instance_id = o.instance_id where i.key = '{key}'"
            );
            run(bed, text).await.unwrap()
        };
        assert_eq!(once("rests").await, 0, "of calls that closed long ago");
        assert_eq!(once("waits").await, 1, "of its open call, not of those that closed while it rested");
        assert_eq!(once("in-error").await, 1, "an exhausted call may be run again");
        assert_eq!(walks.get("delayed").await.unwrap().unwrap().status, Status::Completed, "a delayed event waits for it");

        walks.retry("in-error").await.unwrap();
        walks.resume("paused").await.unwrap();
        bed.advance(26 * DAY).await;
        assert_eq!(walks.get("waits").await.unwrap().unwrap().version, 3);
        let told: Vec<_> = walks.history("delayed").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected")), "{told:#?}");
        bed.advance(31 * DAY).await;
        assert!(walks.get("delayed").await.unwrap().is_none() && walks.get("paused").await.unwrap().is_none());
    }
}

promise! {
    /// The chain of its calls has no gap after the oldest one that is kept; the invariants check that after every step.
    async fn history_of_a_live_instance_that_is_older_than_the_retention_is_deleted(bed in walks()) {
        let walks = bed.machine::<Walk>();
        walks.send("w", Begin { failures: 1 }).await.unwrap();
        bed.run_until_idle().await;
        walks.pause("w").reason("rain").await.unwrap();
        walks.resume("w").await.unwrap();
        for day in 0..60_u32 {
            bed.advance(DAY).await;
            walks.send("w", Step { failures: 0 }).dedup(format!("day-{day}")).await.unwrap();
            bed.run_until_idle().await;
            if day % 20 == 0 {
                crate::support::assert_invariants_hold(bed).await;
            }
        }
        let walk = walks.get("w").await.unwrap().unwrap();
        assert_eq!((walk.state, walk.version), (Some(WalkState::Walking), 61));
        let attempts = walks.attempts("w").await.unwrap();
        assert_eq!(attempts.len(), 31, "of the last thirty days and today");
        assert!(attempts.iter().all(|attempt| attempt.from.as_deref() == Some("walking")));
        let told: Vec<_> = walks.history("w").await.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!((told.len(), told.iter().any(|line| line.contains("rain"))), (93, false), "{told:#?}");
        assert_eq!(rows(bed).await, [
            ("fsm_instances", 1), ("fsm_async_calls", 31), ("fsm_once", 31), ("fsm_requests", 31), ("fsm_history", 0), ("fsm_timers", 0),
        ]);

        assert_eq!(walks.send("w", Step { failures: 0 }).dedup("day-29").await.unwrap().outcome, SendOutcome::Duplicate, "within the retention");
        assert_eq!(walks.send("w", Step { failures: 0 }).dedup("day-28").await.unwrap().outcome, SendOutcome::Started, "deleted by now");
        bed.run_until_idle().await;
        bed.restart().await;
        walks.send("w", Finish).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(walks.get("w").await.unwrap().unwrap().version, 63);
        crate::support::assert_invariants_hold(bed).await;
        bed.advance(31 * DAY).await;
        assert_eq!(rows(bed).await.iter().map(|(_, count)| count).sum::<i64>(), 0, "finally all of its rows are deleted");
    }
}

promise! {
    async fn the_first_and_the_last_attempts_of_a_long_call_are_kept(bed in walks()) {
        let walks = bed.machine::<Walk>();
        walks.send("w", Begin { failures: 0 }).await.unwrap();
        walks.send("w", Rest { failures: 100 }).dedup("rest").await.unwrap();
        bed.advance(60 * DAY).await;
        let numbers = async || walks.attempts("w").await.unwrap().iter().map(|attempt| attempt.number).collect::<Vec<_>>();
        assert_eq!(numbers().await, [vec![1], (31..=62).collect()].concat());
        let call = walks.get("w").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.last_error.as_deref()), (62, Some("attempt 61 found no inn")));
        let told: Vec<_> = walks.history("w").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().all(|line| !line.contains("exhausted")), "{told:#?}");
        assert_eq!(walks.send("w", Rest { failures: 100 }).dedup("rest").await.unwrap().outcome, SendOutcome::Duplicate, "its call is still open");
        bed.advance(41 * DAY).await;
        let walk = walks.get("w").await.unwrap().unwrap();
        assert_eq!((walk.state, walk.version), (Some(WalkState::Resting), 2), "the payload of its event was kept");
        walks.send("w", Step { failures: 0 }).await.unwrap();
        bed.advance(31 * DAY).await;
        assert_eq!(walks.attempts("w").await.unwrap().len(), 1);
    }
}

promise! {
    async fn a_call_that_was_caught_long_ago_can_be_retried_by_an_operator(bed in walks()) {
        let walks = bed.machine::<Walk>();
        walks.send("w", Begin { failures: 0 }).await.unwrap();
        walks.send("w", Climb { failures: 4 }).await.unwrap();
        bed.advance(40 * DAY).await;
        let walk = walks.get("w").await.unwrap().unwrap();
        assert_eq!((walk.status, walk.error.as_deref()), (Status::Error, Some("fell")));
        let verbs = async || walks.attempts("w").await.unwrap().into_iter().map(|attempt| attempt.verb).collect::<Vec<_>>();
        assert_eq!(verbs().await, ["climbing", "climbing", "found"]);
        walks.retry("w").reason("once more").await.unwrap();
        bed.advance(40 * DAY).await;
        assert_eq!(walks.get("w").await.unwrap().unwrap().status, Status::Error);
        crate::support::assert_invariants_hold(bed).await;
        walks.retry("w").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(walks.get("w").await.unwrap().unwrap().state, Some(WalkState::Climbing));
        walks.send("w", Step { failures: 0 }).await.unwrap();
        bed.advance(31 * DAY).await;
        assert_eq!(verbs().await, ["walking"]);
        assert_eq!(run(bed, "select count(*) from fsm_async_calls where machine = 'walk'").await, Some(1), "no catch verb's call is left behind");
        // The call was skipped long ago, and nothing happened since. The newest call and its history entry stay.
        walks.send("w", Climb { failures: 9 }).await.unwrap();
        bed.advance(DAY).await;
        walks.skip("w").await.unwrap();
        bed.advance(40 * DAY).await;
        let walk = walks.get("w").await.unwrap().unwrap();
        assert_eq!((walk.status, walk.state), (Status::Running, Some(WalkState::Walking)));
    }
}

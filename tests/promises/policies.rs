//! Every form and option of `#[retry]`, tested by the times at which attempts start.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Retry, RetryAdvice, Retryable};
use serde::{Deserialize, Serialize};

use crate::support::promise;

/// Declares an error type.
macro_rules! error {
    ($name:ident, $text:literal) => {
        #[derive(Debug)]
        struct $name;
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($text)
            }
        }
        impl std::error::Error for $name {}
    };
}

error!(Away, "the other side is away");
error!(Fraud, "this is fraud");
error!(Throttled, "too many calls");
error!(Decided, "it is decided");

impl Retryable for Throttled {
    fn retry(&self) -> RetryAdvice {
        RetryAdvice::After(Duration::from_secs(50))
    }
}
impl Retryable for Decided {
    fn retry(&self) -> RetryAdvice {
        RetryAdvice::Never
    }
}
fsm::retryable!(Decided);

/// An error that wraps another one.
#[derive(Debug)]
struct Wrapped<E>(E);
impl<E> std::fmt::Display for Wrapped<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the call failed")
    }
}
impl<E: std::error::Error + 'static> std::error::Error for Wrapped<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn growing(failed: &FailedAttempt<'_>) -> Option<Duration> {
    match failed.attempt() {
        4 => None,
        n => Some(Duration::from_secs(u64::from(n * n)) + failed.elapsed()),
    }
}

fn broken(_failed: &FailedAttempt<'_>) -> Option<Duration> {
    panic!("no idea how long")
}

/// Declares a verb that fails in one way, with an event of its own.
macro_rules! trial {
    ($($(#[$policy:meta])* $verb:ident($event:ident) -> $error:expr;)*) => { $(
        #[derive(Debug, Clone, Serialize, Deserialize)]
        struct $event;
        #[verb]
        $(#[$policy])*
        async fn $verb(ctx: &mut Ctx<'_>, _event: $event) -> Result {
            let _ = &ctx;
            Err($error.into())
        }
    )* };
}

trial! {
    #[retry(10, "5s", "1h")] doubled(Doubled) -> Away;
    #[retry(10, "5s")] flat(Flat) -> Away;
    #[retry("5s", "10m")] endless(Endless) -> Away;
    #[retry(max_attempts = 10, min = "1s", max = "10s")] capped(Capped) -> Away;
    #[retry(4, min = "1s", backoff = 3.0)] tripled(Tripled) -> Away;
    #[retry(3, "10s", within = "25s")] bounded(Bounded) -> Away;
    #[retry(20, "10s", jitter = 0.5)] jittery(Jittery) -> Away;
    #[retry(3, "5s", give_up_on(Fraud))] given_up(GivenUp) -> Wrapped(Fraud);
    #[retry(max_attempts = 9, delay = growing)] delayed(Delayed) -> Away;
    #[retry(9, delay = broken)] undelayed(Undelayed) -> Away;
    #[retry(2, "1s", "2s")] again(Again) -> Failure::retry_after(Away, Duration::from_secs(50));
    #[retry(9, "1s")] final_one(FinalOne) -> Failure::permanent(Away);
    #[retry(9, "1s")] known(Known) -> Wrapped(Decided);
    #[retry(none)] never(Never) -> Away;
    by_default(ByDefault) -> Away;
    #[retry(max_attempts = 1, min = "1s")] single(Single) -> Away;
    #[retry(max_attempts = 3, min = "1s", max = "1s")] three(Three) -> Away;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Throttle;
#[verb]
#[retry(1, "1s", "2s")]
async fn throttled(_event: Throttle) -> Result<(), Throttled> {
    Err(Throttled)
}

fsm! {
    machine Trial = "trial" {
        retry(2, "7s");
        start doubled | flat | endless | capped | tripled | bounded | jittery | given_up | delayed | undelayed | again | final_one
            | known | never | by_default | single | three | throttled;
        end doubled, flat, endless, capped, tripled, bounded, jittery, given_up, delayed, undelayed, again, final_one, known, never,
            by_default, single, three, throttled;
    }
}

fn trials() -> TestBedBuilder {
    TestBed::builder().only::<Trial>()
}

async fn waits(bed: &TestBed, key: &str) -> Vec<u64> {
    let attempts = bed.machine::<Trial>().attempts(key).await.unwrap();
    let starts: Vec<_> = attempts.iter().filter_map(|attempt| attempt.started_at).collect();
    starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect()
}

promise! {
    async fn each_policy_starts_its_attempts_when_it_says(bed in trials()) {
        let trials = bed.machine::<Trial>();
        macro_rules! begin {
            ($($event:ident),*) => { $(trials.send(stringify!($event), $event).await.unwrap();)* };
        }
        begin!(Doubled, Flat, Endless, Capped, Tripled, Bounded, GivenUp, Delayed, Undelayed, Again, FinalOne, Known, Never, ByDefault, Single, Three, Throttle);
        bed.advance(Duration::from_secs(2 * 3600)).await;
        let expected: [(&str, &[u64]); 16] = [
            ("Doubled", &[5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]),
            ("Flat", &[5; 10]),
            ("Capped", &[1, 2, 4, 8, 10, 10, 10, 10, 10]),
            ("Tripled", &[1, 3, 9, 27]),
            ("Bounded", &[10, 10]),
            ("GivenUp", &[]),
            ("Delayed", &[1, 5, 15]),
            ("Undelayed", &[]),
            ("Again", &[50, 50]),
            ("FinalOne", &[]),
            ("Known", &[]),
            ("Never", &[]),
            ("ByDefault", &[7, 7]),
            ("Single", &[]),
            ("Three", &[1, 1]),
            ("Throttle", &[50]),
        ];
        for (key, expected) in expected {
            assert_eq!(waits(bed, key).await, expected, "{key}");
            assert_eq!(trials.get(key).await.unwrap().unwrap().status, Status::Error, "{key}");
        }
        let endless = waits(bed, "Endless").await;
        assert_eq!(endless[..10], [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        let instance = trials.get("Endless").await.unwrap().unwrap();
        assert_eq!((instance.status, instance.call.unwrap().max_attempts), (Status::Running, None));
        let error = trials.get("Undelayed").await.unwrap().unwrap().error.unwrap();
        assert_eq!(error, "the other side is away; and its delay function `broken` panicked: no idea how long");
        assert_eq!(trials.get("GivenUp").await.unwrap().unwrap().error.unwrap(), "the call failed: this is fraud");
    }
}

promise! {
    async fn jitter_only_adds_and_differs_between_attempts(bed in trials()) {
        bed.machine::<Trial>().send("j", Jittery).await.unwrap();
        bed.advance(Duration::from_secs(3600)).await;
        let waits = waits(bed, "j").await;
        assert_eq!(waits.len(), 20);
        assert!(waits.iter().all(|wait| (10..=15).contains(wait)), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }
}

promise! {
    async fn another_policy_for_an_open_call_counts_the_retries_it_has_used(bed in trials()) {
        let trials = bed.machine::<Trial>();
        trials.send("d", Doubled).await.unwrap();
        bed.advance(Duration::from_secs(15)).await;
        let call = trials.get("d").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.retries_left), (4, Some(7)));
        trials.set_retry("d", Retry::every(Duration::from_secs(2)).retries_at_most(5)).actor("ada").reason("faster").await.unwrap();
        let call = trials.get("d").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.retries_left, call.max_attempts, call.next_at - bed.now()), (4, Some(2), Some(6), Duration::from_secs(20)));
        bed.advance(Duration::from_secs(60)).await;
        assert_eq!(waits(bed, "d").await, [5, 10, 20, 2, 2]);
        assert!(trials.set_retry("d", Retry::every(Duration::from_secs(2))).await.unwrap_err().is_not_allowed());
        let told: Vec<_> = trials.history("d").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.ends_with("rescheduled by ada: faster")), "{told:#?}");
    }
}

promise! {
    async fn a_bulk_act_concerns_exactly_what_its_dry_run_says(bed in trials()) {
        let trials = bed.machine::<Trial>();
        for n in 0..5 {
            trials.send(format!("n-{n}"), Never).await.unwrap();
        }
        trials.send("other", Endless).await.unwrap();
        bed.run_until_idle().await;
        let filter = Filter::default().status(Status::Error).limit(2);
        let plan = trials.bulk(filter).retry().actor("ada").request_id("ticket-9").dry_run().await.unwrap();
        let keys: Vec<_> = plan.instances.iter().map(|instance| instance.key.clone()).collect();
        assert_eq!(keys, ["n-0", "n-1", "n-2", "n-3", "n-4"]);
        trials.send("n-5", Never).await.unwrap();
        bed.run_until_idle().await;
        let done = plan.execute().await.unwrap();
        assert_eq!((done.done, done.refused.len()), (keys, 0));
        bed.run_until_idle().await;
        assert_eq!((trials.attempts("n-0").await.unwrap().len(), trials.attempts("n-5").await.unwrap().len()), (2, 1));
        trials.retry("n-0").request_id("ticket-9").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(trials.attempts("n-0").await.unwrap().len(), 2, "the same request does nothing again");
        assert!(trials.cancel("n-0", "no").request_id("ticket-9").await.unwrap_err().is_conflict());
    }
}

promise! {
    async fn the_activity_says_whether_an_instance_waits_rests_or_is_stuck(bed in trials()) {
        let trials = bed.machine::<Trial>();
        trials.send("w", Doubled).await.unwrap();
        trials.send("s", Never).await.unwrap();
        bed.run_until_idle().await;
        let activity = async |key: &str| trials.get(key).await.unwrap().unwrap().activity().to_string();
        assert_eq!(activity("w").await, "waits until 2030-01-01T00:00:05Z for attempt 2 of 11 of `doubled`");
        assert_eq!(activity("s").await, "is stuck until an operator acts: the other side is away");
        trials.cancel("s", "enough").await.unwrap();
        assert_eq!(activity("s").await, "is cancelled");
        let call = trials.get("w").await.unwrap().unwrap().call.unwrap();
        assert_eq!(call.last_took, Some(Duration::ZERO));
    }
}

/// An event whose verb exceeds its timeout. The verb may listen to the cancellation and end in time to clean up.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Linger {
    listens: bool,
}

#[verb(timeout = "50ms")]
#[retry(none)]
async fn lingered(ctx: &mut Ctx<'_>, cleaned_up: Data<std::sync::Arc<std::sync::atomic::AtomicBool>>, event: Linger) -> Result {
    if event.listens {
        ctx.cancelled().await;
        cleaned_up.store(true, std::sync::atomic::Ordering::SeqCst);
        return Ok(());
    }
    std::future::pending().await
}

fsm! {
    machine Lingering = "lingering" {
        start lingered;
        end lingered;
    }
}

mod a_verb_over_its_time_is_told_and_has_timed_out_whatever_it_returns_then {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    async fn check(bed: TestBed, cleaned_up: Arc<AtomicBool>) {
        let all = bed.machine::<Lingering>();
        for listens in [false, true] {
            let key = format!("listens-{listens}");
            all.send(&key, Linger { listens }).await.unwrap();
            bed.run_until_idle().await;
            let lingering = all.get(&key).await.unwrap().unwrap();
            assert_eq!(
                (lingering.status, lingering.error.as_deref()),
                (Status::Error, Some("the attempt took longer than its timeout of 50ms"))
            );
            assert_eq!(cleaned_up.load(Ordering::SeqCst), listens);
        }
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let cleaned_up = Arc::new(AtomicBool::new(false));
        check(TestBed::builder().only::<Lingering>().data(Arc::clone(&cleaned_up)).sqlite().await, cleaned_up).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let cleaned_up = Arc::new(AtomicBool::new(false));
        check(TestBed::builder().only::<Lingering>().data(Arc::clone(&cleaned_up)).postgres().await, cleaned_up).await;
    }
}

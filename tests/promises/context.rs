//! The context of an attempt: its values, and its requests, which are committed with the transition and dropped if the attempt fails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::payment::GatewayError;
use crate::support::assert_invariants_hold;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// The values of `ctx` in one attempt.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    key: String,
    attempt: u32,
    max_attempts: Option<u32>,
    is_last: bool,
    last_error: Option<String>,
    idempotency_key: String,
    state: Option<String>,
    entered_at: Option<Timestamp>,
    now: Timestamp,
}

/// The record of what the attempts saw, and of how often each piece of work was done.
#[derive(Default)]
struct Witness {
    seen: Mutex<Vec<Seen>>,
    works: Mutex<Vec<String>>,
}

impl Witness {
    fn works(&self) -> Vec<String> {
        self.works.lock().unwrap().clone()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Look {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Endless;
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Want {
    Next,
    NextTwice,
    UnfitNext,
    SendAndFailOnce,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Effects {
    /// The number of failures of the effect itself.
    errors: u32,
    /// The number of attempts that fail after the effect.
    failures: u32,
}

fn note(ctx: &Ctx<'_>, witness: &Witness) {
    witness.seen.lock().unwrap().push(Seen {
        key: ctx.key().into(),
        attempt: ctx.attempt(),
        max_attempts: ctx.max_attempts(),
        is_last: ctx.is_last_attempt(),
        last_error: ctx.last_error().map(Into::into),
        idempotency_key: ctx.idempotency_key().into(),
        state: ctx.state().map(Into::into),
        entered_at: ctx.entered_at(),
        now: ctx.now(),
    });
}

#[verb]
#[retry(2, "5s")]
async fn looked(ctx: &mut Ctx<'_>, witness: Data<Arc<Witness>>, event: Look) -> Result {
    note(ctx, &witness);
    if ctx.attempt() <= event.failures { Err(GatewayError(format!("attempt {} failed", ctx.attempt())).into()) } else { Ok(()) }
}

#[verb]
#[retry("5s")]
async fn endless(ctx: &mut Ctx<'_>, witness: Data<Arc<Witness>>, _event: Endless) -> Result {
    note(ctx, &witness);
    if ctx.attempt() == 1 { Err(GatewayError("once".into()).into()) } else { Ok(()) }
}

#[verb]
#[retry(1, "5s")]
async fn wanted(ctx: &mut Ctx<'_>, event: Want) -> Result {
    match event {
        Want::Next => ctx.next(Look { failures: 0 })?,
        Want::NextTwice => {
            ctx.next(Look { failures: 0 })?;
            ctx.next(Endless)?;
        }
        Want::UnfitNext => ctx.next(Effects { errors: 0, failures: 0 })?,
        Want::SendAndFailOnce => {
            ctx.send::<Scout>(format!("{}-{}", ctx.key(), ctx.attempt()), Look { failures: 0 })?;
            ctx.next(Look { failures: 0 })?;
            if ctx.attempt() == 1 {
                return Err(GatewayError("after it asked".into()).into());
            }
        }
    }
    Ok(())
}

#[verb]
#[retry(5, "5s")]
async fn effected(ctx: &mut Ctx<'_>, witness: Data<Arc<Witness>>, event: Effects) -> Result {
    let attempt = ctx.attempt();
    let charge: String = ctx
        .once("charge", async {
            witness.works.lock().unwrap().push(format!("charge in attempt {attempt}"));
            if attempt <= event.errors { Err(GatewayError("no charge".into())) } else { Ok(format!("charge-{attempt}")) }
        })
        .await?;
    let mail: u32 = ctx
        .once("mail", async {
            witness.works.lock().unwrap().push(format!("mail about {charge}"));
            Ok::<_, GatewayError>(attempt)
        })
        .await?;
    if attempt <= event.errors + event.failures { Err(GatewayError(format!("after mail {mail}")).into()) } else { Ok(()) }
}

fsm! {
    machine Scout = "scout" {
        start looked | endless | wanted | effected;
        any(looked, endless, wanted) -> looked | endless;
        effected -> looked | effected;
    }
}

fn scouts(witness: &Arc<Witness>) -> TestBedBuilder {
    TestBed::builder().only::<Scout>().data(Arc::clone(witness))
}

/// A promise about the values that a witness recorded.
macro_rules! witnessed {
    (async fn $name:ident($bed:ident, $witness:ident) $body:block) => {
        mod $name {
            use super::*;

            async fn check($bed: &TestBed, $witness: &Witness) {
                $body;
                assert_invariants_hold($bed).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                let witness = Arc::new(Witness::default());
                check(&scouts(&witness).sqlite().await, &witness).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                let witness = Arc::new(Witness::default());
                check(&scouts(&witness).postgres().await, &witness).await;
            }
        }
    };
}

witnessed! {
    async fn an_attempt_knows_its_number_its_limit_and_why_the_one_before_failed(bed, witness) {
        let scouts = bed.machine::<Scout>();
        let sent = scouts.send("s", Look { failures: 3 }).await.unwrap();
        bed.advance(2 * FIVE_SECONDS).await;
        scouts.retry("s").await.unwrap();
        bed.run_until_idle().await;
        let id = sent.call.unwrap().to_string();
        let begin = bed.now() - 2 * FIVE_SECONDS;
        let expected = |attempt, max_attempts, is_last, last_error: Option<&str>| Seen {
            key: "s".into(),
            attempt,
            max_attempts: Some(max_attempts),
            is_last,
            last_error: last_error.map(Into::into),
            idempotency_key: id.clone(),
            state: None,
            entered_at: None,
            now: begin + FIVE_SECONDS * (attempt - 1).min(2),
        };
        assert_eq!(*witness.seen.lock().unwrap(), [
            expected(1, 3, false, None),
            expected(2, 3, false, Some("attempt 1 failed")),
            expected(3, 3, true, Some("attempt 2 failed")),
            expected(4, 6, false, Some("attempt 3 failed")),
        ]);

        witness.seen.lock().unwrap().clear();
        scouts.send("s", Endless).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        let seen = witness.seen.lock().unwrap().clone();
        assert_eq!(seen.iter().map(|it| (it.attempt, it.max_attempts, it.is_last)).collect::<Vec<_>>(), [(1, None, false), (2, None, false)]);
        assert!(seen.iter().all(|it| it.idempotency_key != id && it.state.as_deref() == Some("looked")));
    }
}

witnessed! {
    async fn an_effect_is_kept_over_attempts_and_restarts_and_its_error_is_not(bed, witness) {
        let scouts = bed.machine::<Scout>();
        scouts.send("s", Effects { errors: 2, failures: 2 }).await.unwrap();
        bed.advance(2 * FIVE_SECONDS).await;
        let done = ["charge in attempt 1", "charge in attempt 2", "charge in attempt 3", "mail about charge-3"];
        assert_eq!(witness.works(), done);
        bed.restart().await;
        bed.advance(2 * FIVE_SECONDS).await;
        assert_eq!(witness.works(), done, "two more attempts repeated neither of them");
        let attempts = scouts.attempts("s").await.unwrap();
        let errors: Vec<_> = attempts.iter().map(|attempt| attempt.error.as_deref()).collect();
        assert_eq!(errors, [Some("no charge"), Some("no charge"), Some("after mail 3"), Some("after mail 3"), None]);

        scouts.send("s", Effects { errors: 0, failures: 0 }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(witness.works()[4..], ["charge in attempt 1", "mail about charge-1"], "another call has effects of its own");
    }
}

witnessed! {
    async fn a_verb_asks_for_one_next_event_that_fits(bed, _witness) {
        let scouts = bed.machine::<Scout>();
        let ended = async |key: &str, want| {
            scouts.send(key, want).await.unwrap();
            bed.advance(FIVE_SECONDS).await;
            let scout = scouts.get(key).await.unwrap().unwrap();
            (scout.state, scout.status, scout.version, scout.error)
        };
        assert_eq!(ended("fits", Want::Next).await, (Some(ScoutState::Looked), Status::Running, 2, None));
        let twice = "`wanted` has asked for its next event already: one an attempt".to_owned();
        assert_eq!(ended("twice", Want::NextTwice).await, (None, Status::Error, 0, Some(twice)));
        let (state, status, version, error) = ended("unfit", Want::UnfitNext).await;
        assert_eq!((state, status, version), (None, Status::Error, 0));
        let error = error.unwrap();
        assert!(error.starts_with("`scout` in `wanted` takes `Look`, `Endless`, not `") && error.ends_with("Effects`"), "{error}");
    }
}

witnessed! {
    async fn the_requests_of_a_failed_attempt_are_dropped(bed, _witness) {
        let scouts = bed.machine::<Scout>();
        scouts.send("s", Want::SendAndFailOnce).await.unwrap();
        bed.run_until_idle().await;
        assert!(scouts.get("s-1").await.unwrap().is_none() && scouts.get("s").await.unwrap().unwrap().version == 0);
        bed.advance(FIVE_SECONDS).await;
        assert!(scouts.get("s-1").await.unwrap().is_none(), "the send of the failed attempt was dropped");
        assert_eq!(scouts.get("s-2").await.unwrap().unwrap().version, 1);
        assert_eq!(scouts.get("s").await.unwrap().unwrap().version, 2);
    }
}

witnessed! {
    async fn a_verb_sees_the_engines_time_and_when_its_state_was_entered(bed, witness) {
        let scouts = bed.machine::<Scout>();
        scouts.send("s", Look { failures: 1 }).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        let entered = bed.now();
        bed.advance(FIVE_SECONDS).await;
        bed.restart().await;
        scouts.send("s", Look { failures: 2 }).await.unwrap();
        scouts.send("s", Endless).await.unwrap();
        bed.advance(2 * FIVE_SECONDS).await;
        let entered_again = bed.now();
        bed.advance(FIVE_SECONDS).await;
        let seen: Vec<_> = witness.seen.lock().unwrap().iter().map(|it| (it.entered_at, it.now)).collect();
        let again = entered + FIVE_SECONDS;
        assert_eq!(seen, [
            (None, entered - FIVE_SECONDS),
            (None, entered),
            (Some(entered), again),
            (Some(entered), again + FIVE_SECONDS),
            (Some(entered), again + 2 * FIVE_SECONDS),
            (Some(entered_again), entered_again),
            (Some(entered_again), entered_again + FIVE_SECONDS),
        ]);
        assert_eq!(scouts.get("s").await.unwrap().unwrap().entered_at, Some(entered_again + FIVE_SECONDS));
        scouts.pause("s").await.unwrap();
        scouts.resume("s").await.unwrap();
        assert_eq!(scouts.get("s").await.unwrap().unwrap().entered_at, Some(entered_again + FIVE_SECONDS), "an act moves nothing");
    }
}

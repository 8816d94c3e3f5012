//! The machine of the walk, whose events say how their verbs end, and the random acts.

use fsm::prelude::*;
use fsm::{Retry, RetryAdvice};
use fsm_core::decide::operate::Act as OperateRequest;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// The number of instances.
pub const KEYS: usize = 2;
/// The maximum number of events in an inbox.
pub const INBOX: u64 = 4;

/// The way in which the verb of an event ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Script {
    /// The number of attempts that fail.
    failures: u32,
    /// The retry advice of the failures: 0 is never, 1 is after 11 s, any other value is the policy's.
    advice: u8,
    /// True if the verb requests a next event when it succeeds.
    leads_on: bool,
}

impl Script {
    /// Returns the end of this attempt: an optional next event, or the retry advice of a failure.
    pub fn play(self, attempt: u32) -> Result<Option<Go>, RetryAdvice> {
        if attempt <= self.failures {
            return Err(match self.advice {
                0 => RetryAdvice::Never,
                1 => RetryAdvice::After(Duration::from_secs(11)),
                _ => RetryAdvice::Default,
            });
        }
        Ok(self.leads_on.then(|| Go(Script { failures: self.failures.saturating_sub(1), advice: 2, leads_on: false })))
    }

    /// Returns the next event that the catch verb requests.
    pub fn rescue(self) -> Option<Go> {
        self.leads_on.then_some(Go(Script { failures: 0, advice: 2, leads_on: false }))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin(pub Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Go(pub Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Halt(pub Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stop(pub Script);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    pub attempts: Vec<u32>,
}

/// The error of every failure.
pub const ERROR: std::fmt::Error = std::fmt::Error;

fn play(ctx: &mut Ctx<'_>, steps: &mut Steps, script: Script) -> Result {
    steps.attempts.push(ctx.attempt());
    let next = script.play(ctx.attempt()).map_err(|advice| Failure::new(ERROR).with_advice(advice))?;
    next.map_or(Ok(()), |next| Ok(ctx.next(next)?))
}

#[verb]
#[retry(2, "5s", "1m")]
async fn begun(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Begin) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
#[retry(1, "3s", catch = rescued)]
async fn gone(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Go) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
async fn halted(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Halt) -> Result {
    play(ctx, steps, event.0)
}

/// Requests no next event, because `stopped` is an end.
#[verb]
async fn stopped(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Stop) -> Result {
    play(ctx, steps, Script { leads_on: false, ..event.0 })
}

#[verb]
async fn waited(steps: &mut Steps, _timeout: Timeout) -> Result {
    steps.attempts.push(0);
    Ok(())
}

#[verb]
async fn rescued(ctx: &mut Ctx<'_>, caught: Caught<Go>) -> Result {
    caught.event.0.rescue().map_or(Ok(()), |next| Ok(ctx.next(next)?))
}

fsm! {
    /// A walk that continues until it is stopped.
    pub machine Walk = "walk" {
        keeps Steps;
        start begun;
        begun -> gone | halted;
        gone -> gone | halted | stopped;
        gone after "40s" -> waited;
        waited -> gone | stopped;
        halted -> gone | stopped;
        end stopped;
    }
}

/// One act. All work that is due afterwards is done before the next act.
#[derive(Debug, Clone)]
pub enum Act {
    Send { key: usize, event: &'static str, script: Script, dedup: Option<usize>, after: Option<Duration>, reject_if_busy: bool },
    Operate { key: usize, act: OperateRequest },
    Advance(Duration),
}

impl Act {
    pub fn draw(random: &mut Random) -> Act {
        let key = random.below(KEYS);
        match random.below(10) {
            0..=4 => {
                let failures = [0, 0, 0, 1, 2, 9][random.below(6)];
                let script = Script { failures, advice: random.below(6) as u8, leads_on: random.below(4) == 0 };
                let dedup = (random.below(4) == 0).then(|| random.below(3));
                // The time has microseconds, so that two timers are rarely due together: their order is not guaranteed.
                let after = (random.below(6) == 0).then(|| Duration::from_micros(random.below(20_000_000) as u64));
                // `Stop` is rare, because it ends the instance.
                let event = ["Begin", "Go", "Go", "Go", "Go", "Halt", "Halt", "Stop"][random.below(8)];
                Act::Send { key, event, script, dedup, after, reject_if_busy: random.below(8) == 0 }
            }
            5..=7 => {
                let act = match random.below(12) {
                    0..=2 => OperateRequest::Retry,
                    3 | 4 => OperateRequest::Skip,
                    5 | 6 => OperateRequest::Pause,
                    7..=9 => OperateRequest::Resume,
                    10 => OperateRequest::SetRetry(Box::new(Retry::every(Duration::from_secs(2)).retries_at_most(3))),
                    _ => OperateRequest::Cancel,
                };
                Act::Operate { key, act }
            }
            _ => Act::Advance(Duration::from_secs([1, 3, 5, 20, 60][random.below(5)])),
        }
    }
}

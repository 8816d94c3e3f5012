//! Unit tests of the decisions: a payment machine, and the changes that each request or outcome produces.

mod ends;
mod operators;
mod sends;

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::fire::fire;
use super::operate::{Act, Operation};
use super::refusal::Refusal;
use super::send::{Accepted, Dedup, Send, SendOutcome, put, send};
use super::settle::settle;
use super::{Moment, Standing};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind, Payload, Request, Timer, TimerChange, Waiting};
use crate::ids::{CallId, InstanceId, SessionId, TimerId};
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine, TIMEOUT, Verb};
use crate::outcome::{Asks, Event, Outcome, Problem};
use crate::retry::{Retry, RetryAdvice};
use crate::time::Timestamp;

pub(super) const SESSION: SessionId = SessionId(Uuid::from_u128(7));

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

pub(super) fn moment(second: i64) -> Moment {
    Moment { now: at(second), grant: None, fresh: CallId(Uuid::from_u128(1000 + u128::from(second.unsigned_abs()))) }
}

pub(super) fn call(n: u128) -> CallId {
    CallId(Uuid::from_u128(n))
}

fn three_retries() -> Retry {
    Retry {
        max_attempts: Some(4),
        min: Duration::from_secs(5),
        max: Duration::from_secs(3600),
        backoff: 2.0,
        jitter: 0.0,
        within: None,
        give_up_on: Vec::new(),
        delay: None,
        catch: None,
    }
}

/// created (retried three times) -> paid -> completed; created after 30 min -> expired; created on Cancel -> cancelled.
pub(super) fn machine() -> Machine {
    let verb = |name: &str, event: &str, retry| Verb { name: name.into(), event: event.into(), timeout: None, retry };
    let edge =
        |from: Option<&str>, event: &str, to: &str, after| Edge { from: from.map(Into::into), event: event.into(), to: to.into(), after };
    Machine {
        name: "payment".into(),
        docs: String::new(),
        verbs: vec![
            verb("created", "Created", Some(three_retries())),
            verb("paid", "Paid", None),
            verb("completed", "Completed", None),
            verb("expired", TIMEOUT, None),
            verb("cancelled", "Cancel", None),
        ],
        edges: vec![
            edge(None, "Created", "created", None),
            edge(Some("created"), "Paid", "paid", None),
            edge(Some("created"), TIMEOUT, "expired", Some(Duration::from_secs(1800))),
            edge(Some("created"), "Cancel", "cancelled", None),
            edge(Some("paid"), "Completed", "completed", None),
        ],
        ends: vec!["completed".into(), "expired".into(), "cancelled".into()],
        record: None,
    }
}

pub(super) fn unborn() -> Standing {
    let instance = Instance::new(InstanceId(Uuid::from_u128(1)), "payment", "order-7", at(0));
    Standing { is_new: true, ..Standing::of(instance) }
}

pub(super) fn request(n: u128, event: &str) -> Send {
    let event = Event { name: event.into(), payload: b"{}".to_vec() };
    Send { id: call(n), event, dedup: None, deliver_at: None, reject_if_busy: false, inbox_limit: 1000 }
}

pub(super) fn sent(standing: Standing, send_it: Send, second: i64) -> Result<Accepted, Refusal> {
    send(&machine(), &standing, send_it, moment(second)).unwrap()
}

/// The snapshot after `changes` are written. Its newest attempt is the one that they open.
pub(super) fn after(changes: &Changes) -> Standing {
    let newest = changes.open.as_ref().map(|open| Arc::clone(&open.attempt));
    Standing { newest, ..Standing::of(changes.instance.clone()) }
}

pub(super) fn claimed(standing: &Standing, second: i64) -> Attempt {
    let newest = standing.newest.clone().expect("a call is open");
    Attempt { state: AttemptState::Executing, worker: Some(SESSION), started_at: Some(at(second)), ..Arc::unwrap_or_clone(newest) }
}

pub(super) fn begun() -> Standing {
    after(&sent(unborn(), request(1, "Created"), 0).unwrap().changes.unwrap())
}

pub(super) fn ended(standing: &Standing, outcome: Outcome, second: i64) -> Changes {
    settle(&machine(), standing, &claimed(standing, second), outcome, moment(second)).unwrap()
}

fn operate(standing: Standing, act: Act, reason: Option<&str>, second: i64) -> Result<Option<Changes>, Refusal> {
    let operation = Operation { act, reason: reason.map(Into::into), actor: None, request: None };
    super::operate::operate(&machine(), &standing, operation, moment(second)).unwrap()
}

pub(super) fn success() -> Outcome {
    Outcome::Success { record: None, asks: Asks::default() }
}

pub(super) fn failure() -> Outcome {
    Outcome::Failure(Problem { error: "no route".into(), advice: RetryAdvice::Default })
}

/// A snapshot of an instance that rests in `created` without an open call.
pub(super) fn rests_in_created() -> Standing {
    Standing { newest: begun().newest, ..Standing::of(ended(&begun(), success(), 1).instance) }
}

pub(super) fn in_error() -> Standing {
    let mut standing = begun();
    let mut second = 0;
    while standing.instance.status != Status::Error {
        let changes = ended(&standing, failure(), second);
        let last = claimed(&standing, second);
        standing = after(&changes);
        if standing.newest.is_none() {
            standing.newest = Some(Attempt { state: AttemptState::Error, ..last }.into());
        }
        second += 3600;
    }
    standing
}

//! Unit tests of the decisions: a payment machine, and the changes that each request or outcome produces.

mod ends;
mod interrupts;
mod operators;
mod sends;

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::complete::complete;
use super::fire::fire;
use super::operate::{Act, Operation};
use super::refusal::Refusal;
use super::send::{Accepted, Dedup, Send, SendOutcome, put, send};
use super::{DecisionContext, InstanceSnapshot};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind, Payload, Request, Timer, TimerChange, Waiting};
use crate::ids::{CallId, InstanceId, SessionId, TimerId};
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine, TIMEOUT, Verb};
use crate::outcome::{Event, Outcome, Problem, VerbRequests};
use crate::priority::Priority;
use crate::retry::{Retry, RetryAdvice};
use crate::time::Timestamp;

pub(super) const SESSION: SessionId = SessionId(Uuid::from_u128(7));

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

pub(super) fn moment(second: i64) -> DecisionContext {
    DecisionContext { now: at(second), grant: None, fresh: CallId(Uuid::from_u128(1000 + u128::from(second.unsigned_abs()))) }
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
        give_up_if: None,
        delay: None,
        catch: None,
    }
}

/// created (retried three times) -> paid -> completed; created after 30 min -> expired; created on Cancel -> cancelled.
pub(super) fn machine() -> Machine {
    let verb = |name: &str, event: &str, retry| Verb { name: name.into(), event: event.into(), timeout: None, retry, limit: None };
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
            Edge::new(None, "Created", "created"),
            Edge::new(Some("created"), "Paid", "paid"),
            Edge::timer("created", Duration::from_secs(1800), "expired"),
            Edge::new(Some("created"), "Cancel", "cancelled"),
            Edge::new(Some("paid"), "Completed", "completed"),
        ],
        ends: vec!["completed".into(), "expired".into(), "cancelled".into()],
        record: None,
        search: Vec::new(),
    }
}

pub(super) fn unborn() -> InstanceSnapshot {
    let instance = Instance::new(InstanceId(Uuid::from_u128(1)), "payment", "order-7", at(0));
    InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(instance) }
}

pub(super) fn request(n: u128, event: &str) -> Send {
    let event = Event { name: event.into(), payload: b"{}".to_vec() };
    Send::new(call(n), event, 1000)
}

pub(super) fn sent(snapshot: InstanceSnapshot, send_it: Send, second: i64) -> Result<Accepted, Refusal> {
    send(&machine(), &snapshot, send_it, moment(second)).unwrap()
}

/// The snapshot after `changes` are written. Its newest attempt is the one that they open.
pub(super) fn after(changes: &Changes) -> InstanceSnapshot {
    let newest = changes.open.as_ref().map(|open| Arc::clone(&open.attempt));
    InstanceSnapshot { newest, ..InstanceSnapshot::of(changes.instance.clone()) }
}

pub(super) fn claimed(snapshot: &InstanceSnapshot, second: i64) -> Attempt {
    let newest = snapshot.newest.clone().expect("a call is open");
    Attempt { state: AttemptState::Executing, worker: Some(SESSION), started_at: Some(at(second)), ..Arc::unwrap_or_clone(newest) }
}

pub(super) fn begun() -> InstanceSnapshot {
    after(&sent(unborn(), request(1, "Created"), 0).unwrap().changes.unwrap())
}

pub(super) fn ended(snapshot: &InstanceSnapshot, outcome: Outcome, second: i64) -> Changes {
    complete(&machine(), snapshot, &claimed(snapshot, second), outcome, moment(second)).unwrap()
}

fn operate(snapshot: InstanceSnapshot, act: Act, reason: Option<&str>, second: i64) -> Result<Option<Changes>, Refusal> {
    let operation = Operation { act, reason: reason.map(Into::into), actor: None, request: None };
    super::operate::operate(&machine(), &snapshot, operation, moment(second)).unwrap()
}

pub(super) fn success() -> Outcome {
    Outcome::Success { record: None, verb_requests: VerbRequests::default(), timer: None, search: Vec::new() }
}

pub(super) fn failure() -> Outcome {
    Outcome::Failure(Problem { error: "no route".into(), advice: RetryAdvice::Default })
}

/// A snapshot of an instance that rests in `created` without an open call.
pub(super) fn rests_in_created() -> InstanceSnapshot {
    InstanceSnapshot { newest: begun().newest, ..InstanceSnapshot::of(ended(&begun(), success(), 1).instance) }
}

pub(super) fn in_error() -> InstanceSnapshot {
    let mut snapshot = begun();
    let mut second = 0;
    while snapshot.instance.status != Status::Error {
        let changes = ended(&snapshot, failure(), second);
        let last = claimed(&snapshot, second);
        snapshot = after(&changes);
        if snapshot.newest.is_none() {
            snapshot.newest = Some(Attempt { state: AttemptState::Error, ..last }.into());
        }
        second += 3600;
    }
    snapshot
}

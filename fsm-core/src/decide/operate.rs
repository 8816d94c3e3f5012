//! Operations: retry, cancel, pause, resume, skip, and setting another retry policy.

use std::time::Duration;

use super::inbox::NeedsMoreRows;
use super::refusal::{Refusal, whose};
use super::{DecisionContext, InstanceSnapshot, begin, family, forecast, waiting};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, Close, NoteKind, Request, TimerChange};
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::retry::{Retry, RetryState};
use crate::time::Timestamp;

/// An operation on an instance.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Runs the newest call again, now and with a fresh budget. Allowed only if no attempt of the call is executing or due and the call has
    /// not succeeded. A scheduled attempt is cancelled.
    Retry,
    /// Ends the instance. A running verb is notified; of its success and the cancellation, the one that commits first wins.
    Cancel,
    /// Starts no attempt until the instance is resumed.
    Pause,
    /// Ends the pause.
    Resume,
    /// Gives up the open or exhausted call. The instance stays in its state.
    Skip,
    /// Gives the open call another retry policy. Retries that were used still count.
    SetRetry(Box<Retry>),
}

impl Act {
    /// The past participle for messages, as in "cannot be retried".
    fn participle(&self) -> &'static str {
        match self {
            Act::Retry => "retried",
            Act::Cancel => "cancelled",
            Act::Pause => "paused",
            Act::Resume => "resumed",
            Act::Skip => "skipped",
            Act::SetRetry(_) => "rescheduled",
        }
    }

    fn refused(&self, instance: &Instance, why: String) -> Refusal {
        Refusal::NotAllowed { whose: whose(instance), asked: self.participle(), why }
    }
}

/// An operation with its reason and its actor.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The operation.
    pub act: Act,
    /// The reason, for the history.
    pub reason: Option<String>,
    /// The name of the person or program that requested it, for the history.
    pub actor: Option<String>,
    /// The caller's id for the operation and a digest of the operation. A repeated request with the same id changes nothing.
    pub request: Option<(String, Vec<u8>)>,
}

/// The changes of an accepted operation; `None` if there is nothing to write.
pub type Answer = Result<Option<Changes>, Refusal>;

/// Decides an operation. If it has no effect, only its request id is stored, so that a later repetition has no effect either.
pub fn operate(
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    operation: Operation,
    moment: DecisionContext,
) -> Result<Answer, NeedsMoreRows> {
    if let (Some(first), Some((id, digest))) = (&snapshot.request, &operation.request) {
        return Ok(if first.digest == *digest {
            Ok(None)
        } else {
            Err(Refusal::Conflict { whose: whose(&snapshot.instance), dedup: id.clone() })
        });
    }
    // The operator's clock may be a little behind the worker's. No attempt may end before it began, and no attempt may be due before the
    // previous one ended.
    let moment =
        DecisionContext { now: snapshot.newest.as_deref().map_or(moment.now, |newest| moment.now.max(latest_of(newest))), ..moment };
    // The operation is not a call, so its deduplication entry gets an id of its own. The call's id may already be the answer to its sender.
    let request = operation.request.map(|(dedup, digest)| Request { dedup, event: None, digest, call: moment.fresh, at: moment.now });
    let (mut changes, kind) = match act(machine, snapshot, &operation.act, moment)? {
        Ok(Some(acted)) => acted,
        Ok(None) => {
            return Ok(Ok(request.map(|request| Changes { request: Some(request), ..Changes::of(Instance::clone(&snapshot.instance)) })));
        }
        Err(refusal) => return Ok(Err(refusal)),
    };
    forecast::follow(&mut changes, machine, snapshot);
    // The history entry of a retry names the call that runs again. After a catch that is not the newest call.
    let again = changes.open.as_ref().filter(|_| operation.act == Act::Retry).map(|open| open.attempt.call);
    let about = again.or(snapshot.newest.as_deref().map(|newest| newest.call));
    let note = begin::note(&changes.instance, kind, about, operation.reason, moment.now);
    changes.notes.insert(0, crate::changes::Note { actor: operation.actor, ..note });
    changes.request = request;
    Ok(Ok(Some(changes)))
}

/// The changes and the kind of the history entry; `None` if the operation has no effect.
type Acted = Result<Option<(Changes, NoteKind)>, Refusal>;

fn act(machine: &Machine, snapshot: &InstanceSnapshot, act: &Act, moment: DecisionContext) -> Result<Acted, NeedsMoreRows> {
    let instance = &snapshot.instance;
    if instance.status.is_ended() {
        return Ok(match (act, instance.status) {
            (Act::Cancel, Status::Cancelled) => Ok(None),
            _ => Err(act.refused(instance, format!("it is {}", instance.status))),
        });
    }
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(instance) });
    let done = match act {
        Act::Pause | Act::Resume if instance.paused == (*act == Act::Pause) => return Ok(Ok(None)),
        Act::Retry => retry(&mut changes, machine, snapshot, moment.now),
        Act::Cancel => Ok(cancel(&mut changes, machine, snapshot, moment)?),
        Act::Pause | Act::Resume => Ok(pause(&mut changes, *act == Act::Pause)),
        Act::Skip => skip(&mut changes, machine, snapshot, moment)?,
        Act::SetRetry(policy) => set_retry(&mut changes, snapshot, act, policy),
    };
    Ok(done.map(|kind| Some((changes, kind))))
}

fn retry(changes: &mut Changes, machine: &Machine, snapshot: &InstanceSnapshot, now: Timestamp) -> Result<NoteKind, Refusal> {
    let newest = newest_failing(snapshot, now)?;
    // A caught call itself is run again. Its new attempt names the catch call as its predecessor, so that the history stays one chain.
    let again = match &snapshot.caught {
        Some(caught) if snapshot.instance.status == Status::Error => Attempt { previous: Some(newest.call), ..Attempt::clone(caught) },
        _ => newest.clone(),
    };
    if newest.state == AttemptState::Scheduled {
        changes.close = Some(end(newest, AttemptState::Cancelled, now));
    }
    changes.instance.status = Status::Running;
    changes.instance.error = changes.instance.error.take().filter(|_| again.is_catch());
    let fresh = RetryState::fresh(again.retry_state.policy.clone(), now);
    let retry_state = RetryState { snoozes: again.retry_state.snoozes, ..fresh };
    begin::again(changes, machine, &again, Duration::ZERO, retry_state, now);
    Ok(NoteKind::Retried)
}

/// Returns the newest attempt if its call can be retried: it is in error, or scheduled for later.
fn newest_failing(snapshot: &InstanceSnapshot, now: Timestamp) -> Result<&Attempt, Refusal> {
    let instance = &snapshot.instance;
    let why = match &snapshot.newest {
        Some(newest) if instance.status == Status::Error => return Ok(newest),
        Some(newest) if instance.is_open => match newest.state {
            AttemptState::Scheduled if newest.scheduled_at > now => return Ok(newest),
            AttemptState::Scheduled => format!("attempt {} of `{}` is due already", newest.number, newest.verb),
            state => format!("attempt {} of `{}` is {state}", newest.number, newest.verb),
        },
        Some(newest) if newest.state == AttemptState::Success => format!("its newest call, `{}`, succeeded", newest.verb),
        Some(newest) => format!("its newest call, `{}`, was given up", newest.verb),
        None => "it has had no call".to_owned(),
    };
    Err(Act::Retry.refused(instance, why))
}

fn cancel(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    moment: DecisionContext,
) -> Result<NoteKind, NeedsMoreRows> {
    if let Some(live) = live(snapshot) {
        changes.close = Some(end(live, AttemptState::Cancelled, moment.now));
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Cancelled;
    family::cancel(changes);
    changes.timers.push(TimerChange::Clear);
    waiting::take(changes, machine, &snapshot.inbox, moment)?;
    Ok(NoteKind::Cancelled)
}

fn pause(changes: &mut Changes, paused: bool) -> NoteKind {
    changes.instance.paused = paused;
    changes.hold = changes.instance.newest.filter(|_| changes.instance.is_open);
    if paused { NoteKind::Paused } else { NoteKind::Resumed }
}

fn skip(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    moment: DecisionContext,
) -> Result<Result<NoteKind, Refusal>, NeedsMoreRows> {
    let instance = &snapshot.instance;
    let refused = |why| Ok(Err(Act::Skip.refused(instance, why)));
    match live(snapshot) {
        Some(live) if live.state == AttemptState::Scheduled => changes.close = Some(end(live, AttemptState::Cancelled, moment.now)),
        Some(live) => return refused(format!("attempt {} of `{}` is executing", live.number, live.verb)),
        None if instance.status == Status::Error => {}
        None => return refused("it has no open call".to_owned()),
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Running;
    changes.instance.error = None;
    changes.timers.push(TimerChange::Release);
    waiting::take(changes, machine, &snapshot.inbox, moment)?;
    Ok(Ok(NoteKind::Skipped))
}

fn set_retry(changes: &mut Changes, snapshot: &InstanceSnapshot, act: &Act, policy: &Retry) -> Result<NoteKind, Refusal> {
    match live(snapshot) {
        Some(live) if live.state == AttemptState::Scheduled => {
            changes.retry_state = Some(Box::new((live.call, live.number, live.retry_state.under(policy.clone()))));
            Ok(NoteKind::Rescheduled)
        }
        Some(live) => Err(act.refused(&snapshot.instance, format!("attempt {} of `{}` is executing", live.number, live.verb))),
        None => Err(act.refused(&snapshot.instance, "it has no open call".to_owned())),
    }
}

/// The latest known time of the attempt.
pub(super) fn latest_of(attempt: &Attempt) -> Timestamp {
    attempt.finished_at.or(attempt.started_at).unwrap_or(attempt.created_at)
}

fn live(snapshot: &InstanceSnapshot) -> Option<&Attempt> {
    snapshot.newest.as_deref().filter(|newest| snapshot.instance.is_open && newest.state.is_live())
}

pub(super) fn end(attempt: &Attempt, becomes: AttemptState, now: Timestamp) -> Close {
    Close {
        call: attempt.call,
        number: attempt.number,
        expected: attempt.state,
        held_by: attempt.worker,
        frees: attempt.limit.clone().filter(|_| attempt.state == AttemptState::Executing),
        becomes,
        finished_at: now,
        error: None,
    }
}

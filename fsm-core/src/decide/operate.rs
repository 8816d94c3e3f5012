//! A person's hand: retry, cancel, pause, resume, skip, and another retry policy.

use std::time::Duration;

use super::inbox::{self, Unread};
use super::refusal::{Refusal, whose};
use super::{Moment, Standing, begin};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, Close, NoteKind, Request, TimerChange};
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::retry::{Budget, Retry};
use crate::time::Timestamp;

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Run the newest call again, now and with a fresh budget. Allowed if and only if no attempt of it is executing, due
    /// or succeeded; a scheduled one is dropped (seed 001).
    Retry,
    /// End the instance. What executes is told, and whichever commits first wins.
    Cancel,
    /// Start no attempt until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// Give up the open or exhausted call and rest in the state the instance was in.
    Skip,
    /// Let the open call go on under this policy, counting the retries it has used.
    SetRetry(Box<Retry>),
}

impl Act {
    /// The word for it, as in "cannot be retried".
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

/// An act, and who asked for it and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// What is asked for.
    pub act: Act,
    /// Why, for the history.
    pub reason: Option<String>,
    /// Who, for the history.
    pub actor: Option<String>,
    /// The caller's own id for the act: the same again does nothing. With a digest of the act.
    pub request: Option<(String, Vec<u8>)>,
}

/// What an operator is told, with what is to be written; `None` when it was asked for before.
pub type Answer = Result<Option<Changes>, Refusal>;

/// Decides what an operation writes. What is so already is only remembered, so that the same request means nothing later either.
pub fn operate(machine: &Machine, standing: &Standing, operation: Operation, moment: Moment) -> Result<Answer, Unread> {
    if let (Some(first), Some((id, digest))) = (&standing.request, &operation.request) {
        return Ok(if first.digest == *digest {
            Ok(None)
        } else {
            Err(Refusal::Conflict { whose: whose(&standing.instance), dedup: id.clone() })
        });
    }
    // The operator's clock may be a little behind that of the worker: nothing ends before it began, or is due before the last end.
    let moment = Moment { now: standing.newest.as_deref().map_or(moment.now, |newest| moment.now.max(latest_of(newest))), ..moment };
    // The act is no call. It answers under an id of its own, for the call it is about may answer to its sender's.
    let request = operation.request.map(|(dedup, digest)| Request { dedup, event: None, digest, call: moment.fresh, at: moment.now });
    let (mut changes, kind) = match act(machine, standing, &operation.act, moment)? {
        Ok(Some(acted)) => acted,
        Ok(None) => {
            return Ok(Ok(request.map(|request| Changes { request: Some(request), ..Changes::of(Instance::clone(&standing.instance)) })));
        }
        Err(refusal) => return Ok(Err(refusal)),
    };
    inbox::follow(&mut changes, machine, standing);
    // A retry is about the call that runs again, which after a catch is not the newest one.
    let again = changes.open.as_ref().filter(|_| operation.act == Act::Retry).map(|open| open.attempt.call);
    let about = again.or(standing.newest.as_deref().map(|newest| newest.call));
    let note = begin::note(&changes.instance, kind, about, operation.reason, moment.now);
    changes.notes.insert(0, crate::changes::Note { actor: operation.actor, ..note });
    changes.request = request;
    Ok(Ok(Some(changes)))
}

/// What the act writes, and how the history names it; `None` when it is so already.
type Acted = Result<Option<(Changes, NoteKind)>, Refusal>;

fn act(machine: &Machine, standing: &Standing, act: &Act, moment: Moment) -> Result<Acted, Unread> {
    let instance = &standing.instance;
    if instance.status.is_ended() {
        return Ok(match (act, instance.status) {
            (Act::Cancel, Status::Cancelled) => Ok(None),
            _ => Err(act.refused(instance, format!("it is {}", instance.status))),
        });
    }
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(instance) });
    let done = match act {
        Act::Pause | Act::Resume if instance.paused == (*act == Act::Pause) => return Ok(Ok(None)),
        Act::Retry => retry(&mut changes, standing, moment.now),
        Act::Cancel => Ok(cancel(&mut changes, machine, standing, moment)?),
        Act::Pause | Act::Resume => Ok(pause(&mut changes, *act == Act::Pause)),
        Act::Skip => skip(&mut changes, machine, standing, moment)?,
        Act::SetRetry(policy) => set_retry(&mut changes, standing, act, policy),
    };
    Ok(done.map(|kind| Some((changes, kind))))
}

fn retry(changes: &mut Changes, standing: &Standing, now: Timestamp) -> Result<NoteKind, Refusal> {
    let newest = newest_failing(standing, now)?;
    // A caught call is run again itself; that it was caught meanwhile stays in the chain of its history.
    let again = match &standing.caught {
        Some(caught) if standing.instance.status == Status::Error => Attempt { previous: Some(newest.call), ..caught.clone() },
        _ => newest.clone(),
    };
    if newest.state == AttemptState::Scheduled {
        changes.close = Some(end(newest, AttemptState::Cancelled, now));
    }
    changes.instance.status = Status::Running;
    changes.instance.error = changes.instance.error.take().filter(|_| again.is_catch());
    begin::again(changes, &again, Duration::ZERO, Budget::fresh(again.budget.policy.clone(), now), now);
    Ok(NoteKind::Retried)
}

/// The newest attempt, if it neither executes, nor is due, nor succeeded.
fn newest_failing(standing: &Standing, now: Timestamp) -> Result<&Attempt, Refusal> {
    let instance = &standing.instance;
    let why = match &standing.newest {
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

fn cancel(changes: &mut Changes, machine: &Machine, standing: &Standing, moment: Moment) -> Result<NoteKind, Unread> {
    if let Some(live) = live(standing) {
        changes.close = Some(end(live, AttemptState::Cancelled, moment.now));
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Cancelled;
    changes.timers.push(TimerChange::Clear);
    inbox::take(changes, machine, &standing.inbox, moment)?;
    Ok(NoteKind::Cancelled)
}

fn pause(changes: &mut Changes, paused: bool) -> NoteKind {
    changes.instance.paused = paused;
    changes.hold = changes.instance.newest.filter(|_| changes.instance.is_open);
    if paused { NoteKind::Paused } else { NoteKind::Resumed }
}

fn skip(changes: &mut Changes, machine: &Machine, standing: &Standing, moment: Moment) -> Result<Result<NoteKind, Refusal>, Unread> {
    let instance = &standing.instance;
    let refused = |why| Ok(Err(Act::Skip.refused(instance, why)));
    match live(standing) {
        Some(live) if live.state == AttemptState::Scheduled => changes.close = Some(end(live, AttemptState::Cancelled, moment.now)),
        Some(live) => return refused(format!("attempt {} of `{}` is executing", live.number, live.verb)),
        None if instance.status == Status::Error => {}
        None => return refused("it has no open call".to_owned()),
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Running;
    changes.instance.error = None;
    changes.timers.push(TimerChange::Release);
    inbox::take(changes, machine, &standing.inbox, moment)?;
    Ok(Ok(NoteKind::Skipped))
}

fn set_retry(changes: &mut Changes, standing: &Standing, act: &Act, policy: &Retry) -> Result<NoteKind, Refusal> {
    match live(standing) {
        Some(live) if live.state == AttemptState::Scheduled => {
            changes.budget = Some(Box::new((live.call, live.number, live.budget.under(policy.clone()))));
            Ok(NoteKind::Rescheduled)
        }
        Some(live) => Err(act.refused(&standing.instance, format!("attempt {} of `{}` is executing", live.number, live.verb))),
        None => Err(act.refused(&standing.instance, "it has no open call".to_owned())),
    }
}

/// The latest moment that is known of the attempt's past.
fn latest_of(attempt: &Attempt) -> Timestamp {
    attempt.finished_at.or(attempt.started_at).unwrap_or(attempt.created_at)
}

fn live(standing: &Standing) -> Option<&Attempt> {
    standing.newest.as_deref().filter(|newest| standing.instance.is_open && newest.state.is_live())
}

fn end(attempt: &Attempt, becomes: AttemptState, now: Timestamp) -> Close {
    Close {
        call: attempt.call,
        number: attempt.number,
        expected: attempt.state,
        held_by: attempt.worker,
        becomes,
        finished_at: now,
        error: None,
    }
}

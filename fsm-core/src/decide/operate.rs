//! A person's hand: retry, cancel, pause, resume, skip.

use super::refusal::{Refusal, whose};
use super::{Moment, Standing, begin};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, Close, NoteKind, TimerChange};
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::retry::Budget;
use crate::time::Timestamp;
use std::time::Duration;

/// What an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

/// Decides what an act writes; `None` when it is so already.
pub fn operate(
    machine: &Machine,
    standing: Standing,
    act: Act,
    reason: Option<String>,
    moment: Moment,
) -> Result<Option<Changes>, Refusal> {
    let instance = &standing.instance;
    if instance.status.is_ended() {
        return match (act, instance.status) {
            (Act::Cancel, Status::Cancelled) => Ok(None),
            _ => Err(refused(instance, format!("it is {}", instance.status))),
        };
    }
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..instance.clone() });
    let kind = match act {
        Act::Pause | Act::Resume if instance.paused == (act == Act::Pause) => return Ok(None),
        Act::Retry => retry(&mut changes, &standing, moment.now)?,
        Act::Cancel => cancel(&mut changes, machine, &standing, moment),
        Act::Pause | Act::Resume => pause(&mut changes, act == Act::Pause),
        Act::Skip => skip(&mut changes, machine, &standing, moment)?,
    };
    let about = standing.newest.as_ref().map(|newest| newest.call);
    changes.notes.insert(0, begin::note(&changes.instance, kind, about, reason, moment.now));
    Ok(Some(changes))
}

fn retry(changes: &mut Changes, standing: &Standing, now: Timestamp) -> Result<NoteKind, Refusal> {
    let newest = newest_failing(standing, now)?;
    if newest.state == AttemptState::Scheduled {
        changes.close = Some(end(newest, AttemptState::Cancelled, now));
    }
    changes.instance.status = Status::Running;
    changes.instance.error = None;
    begin::again(changes, newest, Duration::ZERO, Budget::fresh(newest.budget.policy.clone(), now), now);
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
        Some(newest) => format!("its newest call, `{}`, succeeded", newest.verb),
        None => "it has had no call".to_owned(),
    };
    Err(refused(instance, why))
}

fn cancel(changes: &mut Changes, machine: &Machine, standing: &Standing, moment: Moment) -> NoteKind {
    if let Some(live) = live(standing) {
        changes.close = Some(end(live, AttemptState::Cancelled, moment.now));
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Cancelled;
    changes.timers.push(TimerChange::Clear);
    begin::take_from_inbox(changes, machine, &standing.inbox, moment);
    NoteKind::Cancelled
}

fn pause(changes: &mut Changes, paused: bool) -> NoteKind {
    changes.instance.paused = paused;
    changes.hold = changes.instance.newest.filter(|_| changes.instance.is_open);
    if paused { NoteKind::Paused } else { NoteKind::Resumed }
}

fn skip(changes: &mut Changes, machine: &Machine, standing: &Standing, moment: Moment) -> Result<NoteKind, Refusal> {
    let instance = &standing.instance;
    match live(standing) {
        Some(live) if live.state == AttemptState::Scheduled => changes.close = Some(end(live, AttemptState::Cancelled, moment.now)),
        Some(live) => return Err(refused(instance, format!("attempt {} of `{}` is executing", live.number, live.verb))),
        None if instance.status == Status::Error => {}
        None => return Err(refused(instance, "it has no open call to skip".to_owned())),
    }
    changes.instance.is_open = false;
    changes.instance.status = Status::Running;
    changes.instance.error = None;
    changes.timers.push(TimerChange::Release);
    begin::take_from_inbox(changes, machine, &standing.inbox, moment);
    Ok(NoteKind::Skipped)
}

fn live(standing: &Standing) -> Option<&Attempt> {
    standing.newest.as_ref().filter(|newest| standing.instance.is_open && newest.state.is_live())
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

fn refused(instance: &Instance, why: String) -> Refusal {
    Refusal::NotRetryable { whose: whose(instance), why }
}

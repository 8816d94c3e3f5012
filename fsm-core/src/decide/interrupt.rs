//! Events that interrupt: they do not wait for a retry of the open call, nor for an operator.

use super::inbox::{self, NeedsMoreRows};
use super::operate::{end, latest_of};
use super::refusal::Refusal;
use super::send::{SendOutcome, busy, full};
use super::{DecisionContext, InstanceSnapshot, begin};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind, Payload, TimerChange};
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine};
use crate::outcome::Event;
use crate::priority::Priority;

/// An event that interrupts, with the options of its send.
pub(super) struct Arrival {
    pub call: (CallId, Priority),
    pub event: Event,
    pub reject_if_busy: bool,
    pub inbox_limit: u64,
    /// False for a process that may begin no call.
    pub begins: bool,
}

/// Returns the edge on which the event interrupts the call that keeps the instance busy; `None` if the event joins the inbox like any
/// other. The event must fit the state in which the instance rests, not the state that the call leads to.
pub fn edge<'m>(machine: &'m Machine, instance: &Instance, event: &str) -> Option<&'m Edge> {
    let is_busy = instance.status == Status::Error || (instance.is_open && instance.status == Status::Running);
    machine.edge(instance.state.as_deref(), event).filter(|edge| edge.interrupts && is_busy)
}

/// True if these changes put an event into the inbox that interrupts the executing attempt, so that its verb must be cancelled.
pub fn waits_for_the_attempt(machine: &Machine, changes: &Changes) -> bool {
    changes.waits.as_ref().is_some_and(|waits| edge(machine, &changes.instance, &waits.event.name).is_some())
}

/// Decides the arrival of an event that interrupts. While an attempt executes, the event waits in front of the others. Otherwise the call
/// ends as cancelled, and the event is taken.
pub(super) fn arrive(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    edge: &Edge,
    arrival: Arrival,
    moment: DecisionContext,
) -> Result<Result<SendOutcome, Refusal>, NeedsMoreRows> {
    let is_executing = snapshot.instance.is_open && open_attempt(snapshot).is_none();
    if is_executing && arrival.reject_if_busy {
        return Ok(Err(busy(snapshot)));
    }
    if !is_executing && arrival.begins {
        let moment = close(changes, snapshot, &arrival.event.name, moment);
        begin::call_with(changes, machine, edge, arrival.call, Payload::Bytes(arrival.event.payload), moment);
        inbox::follow(changes, machine, snapshot);
        return Ok(Ok(SendOutcome::Started));
    }
    let instance = &snapshot.instance;
    let first = snapshot.inbox.first.first();
    if instance.inbox_len() > 0 && first.is_none() {
        return Err(NeedsMoreRows);
    }
    // Of several events that interrupt, the first one goes in front, so that they keep their order.
    let is_first = first.is_none_or(|first| self::edge(machine, instance, &first.event).is_none());
    if !is_first && instance.inbox_len() >= arrival.inbox_limit {
        return Ok(Err(full(instance, arrival.inbox_limit)));
    }
    if !is_executing {
        changes.timers.push(TimerChange::Set(begin::wake(instance, &arrival.event.name, moment)));
    }
    // A process that may begin no call may not write the position of the first event either.
    match is_first && arrival.begins && instance.inbox_len() > 0 {
        true => inbox::put_in_front(changes, arrival.call, arrival.event),
        false => inbox::put(changes, machine, arrival.call, arrival.event, inbox::foreseen(machine, snapshot)?, moment),
    }
    Ok(Ok(SendOutcome::Queued))
}

/// Ends the call of an attempt that did not succeed if a waiting event interrupts it, and takes the first event that fits. Returns false,
/// and changes nothing, if none does. Also ends a call that waits for a retry.
pub(super) fn take(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    moment: DecisionContext,
) -> Result<bool, NeedsMoreRows> {
    let InstanceSnapshot { instance, inbox, .. } = snapshot;
    if instance.inbox_len() == 0 || !machine.is_interruptible(instance.state.as_deref()) {
        return Ok(false);
    }
    let Some(waiting) = inbox.first.iter().find(|waiting| edge(machine, instance, &waiting.event).is_some()) else {
        return if (inbox.first.len() as u64) < instance.inbox_len() { Err(NeedsMoreRows) } else { Ok(false) };
    };
    let moment = close(changes, snapshot, &waiting.event, moment);
    inbox::take(changes, machine, inbox, moment)?;
    Ok(true)
}

/// Ends the open or exhausted call on behalf of the event. Returns the time that follows from it.
fn close(changes: &mut Changes, snapshot: &InstanceSnapshot, event: &str, moment: DecisionContext) -> DecisionContext {
    let mut now = moment.now;
    if let Some(newest) = snapshot.newest.as_deref() {
        // The sender's clock may be a little behind the worker's: nothing may end before it began.
        now = now.max(latest_of(newest));
        if changes.close.is_none() {
            changes.close = open_attempt(snapshot).map(|open| end(open, AttemptState::Cancelled, now));
        }
        let detail = format!("`{event}` ended the call of `{}` after attempt {}", newest.verb, newest.number);
        changes.notes.push(begin::note(&changes.instance, NoteKind::Interrupted, Some(newest.call), Some(detail), now));
    }
    changes.instance.updated_at = now;
    changes.instance.is_open = false;
    changes.instance.status = Status::Running;
    changes.instance.error = None;
    DecisionContext { now, ..moment }
}

/// The scheduled attempt of the open call.
fn open_attempt(snapshot: &InstanceSnapshot) -> Option<&Attempt> {
    snapshot.newest.as_deref().filter(|newest| snapshot.instance.is_open && newest.state == AttemptState::Scheduled)
}

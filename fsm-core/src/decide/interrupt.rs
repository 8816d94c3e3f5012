//! Events that interrupt: they do not wait for a retry of the open call, nor for an operator.

use super::inbox::NeedsMoreRows;
use super::operate::{end, latest_of};
use super::{DecisionContext, InstanceSnapshot, begin, waiting};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind};
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine};

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
    waiting::take(changes, machine, inbox, moment)?;
    Ok(true)
}

/// Ends the open or exhausted call on behalf of the event. Returns the time that follows from it.
pub(super) fn close(changes: &mut Changes, snapshot: &InstanceSnapshot, event: &str, moment: DecisionContext) -> DecisionContext {
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
pub(super) fn open_attempt(snapshot: &InstanceSnapshot) -> Option<&Attempt> {
    snapshot.newest.as_deref().filter(|newest| snapshot.instance.is_open && newest.state == AttemptState::Scheduled)
}

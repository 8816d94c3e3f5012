//! Due timers: a state timer fires, or a delayed event is delivered.

use super::inbox::NeedsMoreRows;
use super::refusal::Refusal;
use super::send::{Send, send};
use super::{DecisionContext, InstanceSnapshot, begin, forecast, interrupt, waiting};
use crate::call::AttemptState;
use crate::changes::{Changes, NoteKind, Payload, Timer, TimerChange};
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::time::Timestamp;

/// Decides the effect of a due timer. The guard ensures that only one of several processes fires it.
pub fn fire(machine: &Machine, snapshot: &InstanceSnapshot, timer: Timer, moment: DecisionContext) -> Result<Changes, NeedsMoreRows> {
    match &timer.state {
        _ if timer.is_wake() => wake(machine, snapshot, &timer, moment),
        Some(state) => Ok(run_out(machine, snapshot, state, &timer, moment)),
        None => deliver(machine, snapshot, timer, moment),
    }
}

fn run_out(machine: &Machine, snapshot: &InstanceSnapshot, state: &str, timer: &Timer, moment: DecisionContext) -> Changes {
    let mut changes = Changes::of(Instance { updated_at: moment.now, ..Instance::clone(&snapshot.instance) });
    let rests_there = changes.instance.state.as_deref() == Some(state) && !changes.instance.status.is_ended();
    match machine.timer(state) {
        // While a transition is in progress the timer is held. The end of the transition decides whether the state is left.
        Some(_) if rests_there && (changes.instance.is_open || changes.instance.status == Status::Error) => {
            changes.timers.push(TimerChange::Hold(timer.id));
        }
        Some(edge) if rests_there => {
            changes.timers.push(TimerChange::Fired(timer.id));
            begin::call(&mut changes, machine, edge, moment.fresh, Payload::Bytes(timer.event.payload.clone()), moment);
            forecast::follow(&mut changes, machine, snapshot);
        }
        // The timer was declared by other code. A process with that code fires it.
        None if rests_there => {}
        _ => changes.timers.push(TimerChange::Fired(timer.id)),
    }
    changes
}

/// Decides a wake-up. A free instance takes the event that was left for a process with newer code, or for one that may begin calls. A busy
/// instance takes it when it is free, unless the event interrupts. An instance that has not begun ends if no further event will come.
fn wake(machine: &Machine, snapshot: &InstanceSnapshot, timer: &Timer, moment: DecisionContext) -> Result<Changes, NeedsMoreRows> {
    let mut changes = Changes::of(Instance::clone(&snapshot.instance));
    changes.timers.push(TimerChange::Fired(timer.id));
    if changes.instance.status == Status::Running && !changes.instance.is_open && changes.instance.inbox_len() > 0 {
        changes.instance.updated_at = moment.now;
        waiting::take(&mut changes, machine, &snapshot.inbox, moment)?;
        forecast::follow(&mut changes, machine, snapshot);
    } else if !is_executing(snapshot) && interrupt::take(&mut changes, machine, snapshot, moment)? {
        forecast::follow(&mut changes, machine, snapshot);
    }
    // The delayed event that it existed for was cancelled.
    if changes.instance.has_not_begun() && !snapshot.awaits_others {
        changes.instance.updated_at = moment.now;
        changes.instance.status = Status::Cancelled;
    }
    Ok(changes)
}

fn is_executing(snapshot: &InstanceSnapshot) -> bool {
    snapshot.instance.is_open && snapshot.newest.as_ref().is_none_or(|newest| newest.state == AttemptState::Executing)
}

/// A delayed event arrives like any other. If it no longer fits, that is recorded. An instance that exists only for this event, and to
/// which no other event will be delivered, ends with it.
fn deliver(machine: &Machine, snapshot: &InstanceSnapshot, timer: Timer, moment: DecisionContext) -> Result<Changes, NeedsMoreRows> {
    let call = CallId(timer.id.0);
    // The event was accepted when it was sent, so a full inbox must not reject it now. It takes no more space in the inbox than it took as
    // a timer.
    let inbox_limit = u64::MAX;
    let request = Send { priority: timer.priority, ..Send::new(call, timer.event, inbox_limit) };
    let instance = Instance::clone(&snapshot.instance);
    let mut changes = match send(machine, snapshot, request, moment)?.map(|accepted| accepted.changes) {
        Ok(Some(changes)) => changes,
        Ok(None) => Changes::of(instance),
        Err(refusal) => {
            let is_over = instance.has_not_begun() && !snapshot.awaits_others;
            let mut changes = rejected(instance, call, &refusal, moment.now);
            if is_over {
                changes.instance.status = Status::Cancelled;
            }
            changes
        }
    };
    changes.timers.push(TimerChange::Fired(timer.id));
    Ok(changes)
}

/// Returns the changes of a rejected delivery: only a history entry with the reason.
pub fn rejected(instance: Instance, call: CallId, refusal: &Refusal, now: Timestamp) -> Changes {
    let mut changes = Changes::of(Instance { updated_at: now, ..instance });
    changes.notes.push(begin::note(&changes.instance, NoteKind::Rejected, Some(call), Some(refusal.to_string()), now));
    changes
}

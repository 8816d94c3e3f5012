//! Waiting events: an instance that is free takes the next one, and an event joins the inbox.

use super::forecast::{self, States};
use super::inbox::{Inbox, NeedsMoreRows};
use super::refusal::Unfit;
use super::{DecisionContext, begin, family};
use crate::changes::{Changes, Forecast, NoteKind, Payload, TimerChange, Waits};
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::outcome::Event;
use crate::priority::Priority;

/// Takes the first waiting event that fits, for an instance that is free, and rejects the events before it. An ended instance rejects all.
/// If no event is left, the instance takes the end of its children, if all have ended.
///
/// An event that this definition cannot judge stays in the inbox with all events behind it, and a wake-up calls a process that can judge
/// it.
pub(super) fn take(changes: &mut Changes, machine: &Machine, inbox: &Inbox, moment: DecisionContext) -> Result<(), NeedsMoreRows> {
    let head = changes.instance.inbox_head;
    for waiting in inbox.first.iter().skip_while(|waiting| waiting.position < head) {
        let is_running = changes.instance.status == Status::Running;
        if is_running && !can_judge(machine, &changes.instance, &waiting.event) {
            changes.timers.push(TimerChange::Set(begin::wake(&changes.instance, &waiting.event, moment)));
            return Ok(());
        }
        changes.instance.inbox_head = waiting.position + 1;
        changes.inbox_taken = Some(head..changes.instance.inbox_head);
        // Neither a timer nor the end of all children waits in the inbox. An event with such a name was written by a role that must not
        // send it.
        let edge = machine.edge(changes.instance.state.as_deref(), &waiting.event).filter(|edge| is_running && edge.is_sent());
        if let Some(edge) = edge {
            begin::call_with(changes, machine, edge, (waiting.call, waiting.priority), Payload::Inbox(waiting.position), moment);
            return Ok(());
        }
        let unfit = Unfit::new(machine, &changes.instance, std::slice::from_ref(&changes.instance.state), &waiting.event);
        let note = begin::note(&changes.instance, NoteKind::Rejected, Some(waiting.call), Some(unfit.to_string()), moment.now);
        changes.notes.push(note);
    }
    if changes.instance.inbox_len() > 0 {
        return Err(NeedsMoreRows);
    }
    family::take(changes, machine, moment);
    Ok(())
}

/// True if this definition has both the event and the instance's state. Otherwise only other code can decide.
fn can_judge(machine: &Machine, instance: &Instance, event: &str) -> bool {
    machine.has_event(event) && instance.state.as_ref().is_none_or(|state| machine.has_state(state))
}

/// Appends the event to the inbox. If the instance is free and this definition cannot judge the event, a wake-up calls a process that can.
pub(super) fn put(
    changes: &mut Changes,
    machine: &Machine,
    (call, priority): (CallId, Priority),
    event: Event,
    after: Option<States>,
    moment: DecisionContext,
) {
    let instance = &changes.instance;
    let is_free = instance.status == Status::Running && !instance.is_open && instance.inbox_len() == 0;
    if is_free && !can_judge(machine, instance, &event.name) {
        changes.timers.push(TimerChange::Set(begin::wake(instance, &event.name, moment)));
    }
    let forecast =
        after.and_then(|states| forecast::led(machine, states, &event.name)).map(|states| Forecast { graph: machine.graph(), states });
    let position = instance.inbox_tail;
    changes.instance.inbox_tail = position + 1;
    changes.waits = Some(Waits { position, call, event, priority, forecast });
}

/// Puts an event that interrupts in front of the waiting events. The stored forecast does not include it.
pub(super) fn put_in_front(changes: &mut Changes, (call, priority): (CallId, Priority), event: Event) {
    let position = changes.instance.inbox_head - 1;
    changes.instance.inbox_head = position;
    changes.is_forecast_stale = true;
    changes.waits = Some(Waits { position, call, event, priority, forecast: None });
}

#[cfg(test)]
mod tests;

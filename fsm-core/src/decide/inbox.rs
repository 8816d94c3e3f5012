//! The inbox of an instance: taking waiting events, adding one, and the forecast of the states that follow. Only a decision that empties
//! the inbox reads all of it.

use super::{DecisionContext, InstanceSnapshot, begin, family};
use crate::call::Attempt;
use crate::changes::{Changes, Forecast, NoteKind, Payload, TimerChange, Waiting, Waits};
use crate::decide::refusal::Unfit;
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::outcome::Event;
use crate::priority::Priority;

/// The known part of an inbox.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inbox {
    /// The first waiting events in order. There may be more in the database.
    pub first: Vec<Waiting>,
    /// The forecast that was stored with the last waiting event.
    pub forecast: Option<Forecast>,
}

/// The decision needs more waiting events than were read. The caller reads more and decides again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedsMoreRows;

/// States that an instance can be in. `None` stands for an instance that has not started.
type States = Vec<Option<String>>;

impl From<Vec<Waiting>> for Inbox {
    /// A completely read inbox without a forecast.
    fn from(first: Vec<Waiting>) -> Inbox {
        Inbox { first, forecast: None }
    }
}

impl Inbox {
    /// Applies written changes to the known part of the inbox.
    pub fn apply(&mut self, changes: &Changes) {
        if let Some(taken) = &changes.inbox_taken {
            self.first.retain(|waiting| waiting.position >= taken.end);
        }
        if changes.is_forecast_stale {
            self.forecast = None;
        }
        if let Some(waits) = changes.waits.as_ref().filter(|waits| waits.position + 1 < changes.instance.inbox_tail) {
            self.first.insert(0, waiting(waits));
        } else if let Some(waits) = &changes.waits {
            // An event behind a gap cannot be added, because the events in the gap were not read.
            let is_next = self.first.last().map_or(changes.instance.inbox_head, |last| last.position + 1) == waits.position;
            if is_next {
                self.first.push(waiting(waits));
            }
            self.forecast.clone_from(&waits.forecast);
        }
    }
}

/// The row of the inbox, without its payload.
fn waiting(waits: &Waits) -> Waiting {
    Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone(), priority: waits.priority }
}

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
    let forecast = after.and_then(|states| led(machine, states, &event.name)).map(|states| Forecast { graph: machine.graph(), states });
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

/// Returns the states that the instance can be in after its open call and all waiting events; `None` if this definition cannot determine them.
///
/// The stored forecast is used if it was made with the same graph. Otherwise it is computed again, which requires the whole inbox.
pub(super) fn foreseen(machine: &Machine, snapshot: &InstanceSnapshot) -> Result<Option<States>, NeedsMoreRows> {
    let InstanceSnapshot { instance, inbox, .. } = snapshot;
    if instance.inbox_len() > 0
        && let Some(forecast) = inbox.forecast.as_ref().filter(|forecast| forecast.graph == machine.graph())
    {
        return Ok(Some(forecast.states.clone()));
    }
    if (inbox.first.len() as u64) < instance.inbox_len() {
        return Err(NeedsMoreRows);
    }
    let at_first = before(instance, snapshot.newest.as_deref());
    let states = inbox.first.iter().try_fold(at_first, |states, waiting| led(machine, states, &waiting.event));
    Ok(states.filter(|states| all_known(machine, states)))
}

/// Marks the stored forecast as lost if these changes lead the waiting events to other states than it assumed.
///
/// The old and the new path usually meet after a few events. If they do not meet within the events that were read, the forecast is dropped,
/// and the next send computes it again.
pub(super) fn follow(changes: &mut Changes, machine: &Machine, snapshot: &InstanceSnapshot) {
    if changes.instance.inbox_len() == 0 || changes.waits.is_some() {
        return;
    }
    // This graph cannot follow a forecast that was made with another graph.
    if snapshot.inbox.forecast.as_ref().is_some_and(|forecast| forecast.graph != machine.graph()) {
        changes.is_forecast_stale = true;
        return;
    }
    let newest = changes.open.as_ref().map(|open| &*open.attempt).or(snapshot.newest.as_deref());
    let is_taken = |waiting: &&Waiting| waiting.position < changes.instance.inbox_head;
    let taken = snapshot.inbox.first.iter().take_while(is_taken);
    let mut was =
        taken.clone().try_fold(before(&snapshot.instance, snapshot.newest.as_deref()), |states, w| led(machine, states, &w.event));
    let mut is = Some(before(&changes.instance, newest));
    let mut left = snapshot.inbox.first.iter().skip(taken.count());
    while was != is || is.is_none() {
        let (Some(waiting), Some(_), Some(_)) = (left.next(), &was, &is) else {
            changes.is_forecast_stale = true;
            return;
        };
        was = was.and_then(|states| led(machine, states, &waiting.event));
        is = is.and_then(|states| led(machine, states, &waiting.event));
    }
}

/// Returns the states that the instance can be in after its open call. There are two for an exhausted call, also while its catch verb runs,
/// because it may still succeed or be skipped.
fn before(instance: &Instance, newest: Option<&Attempt>) -> States {
    let mut states = vec![instance.state.clone()];
    match newest {
        Some(newest) if instance.is_open && !newest.is_catch() => states = vec![Some(newest.to.clone())],
        Some(newest) if instance.is_open || instance.status == Status::Error => states.push(Some(newest.to.clone())),
        _ => {}
    }
    tidy(states)
}

/// Returns the states that the event leads to from `states`; `None` if this definition cannot determine them. A state that does not accept the event
/// stays.
fn led(machine: &Machine, states: States, event: &str) -> Option<States> {
    if !machine.has_event(event) || !all_known(machine, &states) {
        return None;
    }
    let lead = |state: Option<String>| match machine.edge(state.as_deref(), event) {
        Some(edge) => Some(edge.to.clone()),
        None => state,
    };
    Some(tidy(states.into_iter().map(lead).collect()))
}

fn all_known(machine: &Machine, states: &States) -> bool {
    states.iter().flatten().all(|state| machine.has_state(state))
}

fn tidy(mut states: States) -> States {
    states.sort();
    states.dedup();
    states
}

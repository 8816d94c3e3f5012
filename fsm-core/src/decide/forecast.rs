//! The forecast of an inbox: the states that the waiting events lead to.

use super::InstanceSnapshot;
use super::inbox::NeedsMoreRows;
use crate::call::Attempt;
use crate::changes::{Changes, Waiting};
use crate::instance::{Instance, Status};
use crate::machine::Machine;

/// States that an instance can be in. `None` stands for an instance that has not started.
pub(super) type States = Vec<Option<String>>;

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
pub(super) fn led(machine: &Machine, states: States, event: &str) -> Option<States> {
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

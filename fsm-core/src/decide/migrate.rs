//! Migration of one instance: names that the code no longer has are replaced by the mapped ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inbox::Inbox;
use super::{DecisionContext, InstanceSnapshot, begin, waiting};
use crate::call::Attempt;
use crate::changes::{Changes, NoteKind, Timer, TimerChange, Waiting};
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::{Due, Machine};
use crate::time::Timestamp;

/// The replacements for the names that a machine no longer has, from old to new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renames {
    /// The states that instances rest in.
    pub states: BTreeMap<String, String>,
    /// The verbs of open and exhausted calls.
    pub verbs: BTreeMap<String, String>,
    /// The events in inboxes and of delayed sends.
    pub events: BTreeMap<String, String>,
}

/// The changes that rename the names of one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// The changes to the instance row and its history.
    pub changes: Changes,
    /// The attempts that change, with their new names.
    pub attempts: Vec<Attempt>,
    /// The waiting events that change.
    pub waiting: Vec<Waiting>,
    /// The timers that change.
    pub timers: Vec<Timer>,
}

/// Renames the names of one instance, whose inbox must have been read completely. `attempts` are the attempts of calls that may still run.
/// Returns `None` if no name changes.
///
/// A state timer continues under the new name. An idle instance whose new state is an end becomes completed.
pub fn migrate(
    machine: &Machine,
    snapshot: InstanceSnapshot,
    attempts: &[Attempt],
    timers: &[Timer],
    renames: &Renames,
    moment: DecisionContext,
) -> Option<Migrated> {
    let renamed: Vec<_> = attempts.iter().filter_map(|attempt| Some((attempt, renames.attempt(attempt)?))).collect();
    let inbox: Vec<_> = snapshot.inbox.first.iter().map(|waiting| renames.waiting(waiting)).collect();
    let waiting: Vec<_> = inbox.iter().zip(&snapshot.inbox.first).filter(|(new, old)| new != old).map(|(new, _)| new.clone()).collect();
    let timers: Vec<_> = timers.iter().filter_map(|timer| renames.timer(timer)).collect();
    let state = snapshot.instance.state.as_ref().and_then(|state| renames.states.get(state).map(|new| (state.clone(), new.clone())));
    if state.is_none() && renamed.is_empty() && waiting.is_empty() && timers.is_empty() {
        return None;
    }
    let mut renamed_names: Vec<_> = state.iter().map(|(old, new)| format!("state `{old}` renamed to `{new}`")).collect();
    renamed_names.extend(renamed.iter().flat_map(|(old, new)| call_renames(old, new)));
    let events = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if !waiting.is_empty() {
        renamed_names.push(format!("waiting events renamed to {}", events(waiting.iter().map(|waiting| waiting.event.as_str()).collect())));
    }
    if !timers.is_empty() {
        renamed_names.push(format!("timer events renamed to {}", events(timers.iter().map(|timer| timer.event.name.as_str()).collect())));
    }

    let is_ended = snapshot.instance.status.is_ended();
    // Retention counts from `updated_at`. For an ended instance, that must stay the time of its end.
    let updated_at = if is_ended { snapshot.instance.updated_at } else { moment.now };
    let mut changes = Changes::of(Instance { updated_at, ..Arc::unwrap_or_clone(snapshot.instance) });
    let about = changes.instance.newest.map(|(call, _)| call);
    changes.notes.push(begin::note(&changes.instance, NoteKind::Migrated, about, Some(renamed_names.join("; ")), moment.now));
    if let Some((_, new)) = state {
        let is_idle = changes.instance.status == Status::Running && !changes.instance.is_open;
        changes.instance.state = Some(new.clone());
        if is_idle && machine.is_end(&new) {
            changes.instance.status = Status::Completed;
            changes.timers.push(TimerChange::Clear);
            waiting::take(&mut changes, machine, &Inbox::from(inbox), moment).expect("all of the inbox was read");
        }
    }
    let attempts = renamed.into_iter().map(|(_, new)| new).collect();
    Some(Migrated { changes, attempts, waiting, timers })
}

/// Sets the missing timer of a state that was entered by code without that timer. The timer counts from `entered`, the call and the time of
/// the entry, or from now if they are unknown. `computed` is the result of the timer's function if it has one. Returns `None` if the state
/// has no timer.
pub fn late_timer(
    machine: &Machine,
    instance: &Instance,
    entered: Option<(CallId, Timestamp)>,
    computed: Option<Due>,
    now: Timestamp,
) -> Option<Changes> {
    let entered = entered.or(instance.newest.map(|(call, _)| (call, now)))?;
    let timer = begin::timer_of(instance, machine, entered, computed)?;
    Some(Changes { timers: vec![TimerChange::Set(timer)], ..Changes::of(instance.clone()) })
}

fn call_renames(old: &Attempt, new: &Attempt) -> Vec<String> {
    let catch = |attempt: &Attempt| attempt.retry_state.policy.as_ref().and_then(|policy| policy.catch.clone());
    let runs = (old.verb != new.verb).then(|| format!("verb of the call renamed from `{}` to `{}`", old.verb, new.verb));
    let caught = catch(new).filter(|new| Some(new) != catch(old).as_ref());
    let caught = caught.map(|verb| format!("catch verb of the call renamed to `{verb}`"));
    runs.into_iter().chain(caught).collect()
}

impl Renames {
    fn attempt(&self, attempt: &Attempt) -> Option<Attempt> {
        let mut new = attempt.clone();
        // An internal transition leads to the state that the instance is in; so does the catch of one.
        let stays = attempt.verb != attempt.to && attempt.from.as_ref() == Some(&attempt.to);
        replace(&self.verbs, &mut new.verb);
        replace(if stays { &self.states } else { &self.verbs }, &mut new.to);
        replace(&self.events, &mut new.event);
        if let Some(from) = &mut new.from {
            replace(&self.states, from);
        }
        if let Some(catch) = new.retry_state.policy.as_mut().and_then(|policy| policy.catch.as_mut()) {
            replace(&self.verbs, catch);
        }
        (new != *attempt).then_some(new)
    }

    fn waiting(&self, waiting: &Waiting) -> Waiting {
        let mut new = waiting.clone();
        replace(&self.events, &mut new.event);
        new
    }

    fn timer(&self, timer: &Timer) -> Option<Timer> {
        let mut new = timer.clone();
        if let Some(state) = &mut new.state {
            replace(&self.states, state);
        }
        match &new.state {
            Some(state) if !timer.is_wake() => new.event = begin::timeout_in(state, new.due_at),
            _ => replace(&self.events, &mut new.event.name),
        }
        (new != *timer).then_some(new)
    }
}

fn replace(names: &BTreeMap<String, String>, name: &mut String) {
    if let Some(new) = names.get(name) {
        name.clone_from(new);
    }
}

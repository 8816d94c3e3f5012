//! Names that the code no longer has are replaced by those that take their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inbox::{self, Inbox};
use super::{Moment, Standing, begin};
use crate::call::Attempt;
use crate::changes::{Changes, NoteKind, Timer, TimerChange, Waiting};
use crate::ids::CallId;
use crate::instance::{Instance, Status};
use crate::machine::Machine;
use crate::time::Timestamp;

/// What takes the place of each name that a machine no longer has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renames {
    /// States in which instances rest.
    pub states: BTreeMap<String, String>,
    /// Verbs that open or exhausted calls run.
    pub verbs: BTreeMap<String, String>,
    /// Events that wait for their turn or their time.
    pub events: BTreeMap<String, String>,
}

/// All that is to be written of one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// Its row and its history.
    pub changes: Changes,
    /// Those of its attempts that change, under their new names.
    pub attempts: Vec<Attempt>,
    /// Those of its waiting events that change.
    pub waiting: Vec<Waiting>,
    /// Those of its timers that change.
    pub timers: Vec<Timer>,
}

/// Renames what belongs to one instance, of whose inbox all was read; `None` when nothing of it has an old name. `attempts` are those that
/// may yet run.
///
/// A state's timer goes on under the new name. An idle instance whose new state is an end is completed.
pub fn migrate(
    machine: &Machine,
    standing: Standing,
    attempts: &[Attempt],
    timers: &[Timer],
    renames: &Renames,
    moment: Moment,
) -> Option<Migrated> {
    let renamed: Vec<_> = attempts.iter().filter_map(|attempt| Some((attempt, renames.attempt(attempt)?))).collect();
    let inbox: Vec<_> = standing.inbox.first.iter().map(|waiting| renames.waiting(waiting)).collect();
    let waiting: Vec<_> = inbox.iter().zip(&standing.inbox.first).filter(|(new, old)| new != old).map(|(new, _)| new.clone()).collect();
    let timers: Vec<_> = timers.iter().filter_map(|timer| renames.timer(timer)).collect();
    let state = standing.instance.state.as_ref().and_then(|state| renames.states.get(state).map(|new| (state.clone(), new.clone())));
    if state.is_none() && renamed.is_empty() && waiting.is_empty() && timers.is_empty() {
        return None;
    }
    let mut told: Vec<_> = state.iter().map(|(old, new)| format!("state `{old}` is `{new}` now")).collect();
    told.extend(renamed.iter().flat_map(|(old, new)| told_of_call(old, new)));
    let events = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if !waiting.is_empty() {
        told.push(format!("waiting are {} now", events(waiting.iter().map(|waiting| waiting.event.as_str()).collect())));
    }
    if !timers.is_empty() {
        told.push(format!("timed are {} now", events(timers.iter().map(|timer| timer.event.name.as_str()).collect())));
    }

    let is_ended = standing.instance.status.is_ended();
    // When an ended instance ended is what its retention counts from.
    let updated_at = if is_ended { standing.instance.updated_at } else { moment.now };
    let mut changes = Changes::of(Instance { updated_at, ..Arc::unwrap_or_clone(standing.instance) });
    let about = changes.instance.newest.map(|(call, _)| call);
    changes.notes.push(begin::note(&changes.instance, NoteKind::Migrated, about, Some(told.join("; ")), moment.now));
    if let Some((_, new)) = state {
        let is_idle = changes.instance.status == Status::Running && !changes.instance.is_open;
        changes.instance.state = Some(new.clone());
        if is_idle && machine.is_end(&new) {
            changes.instance.status = Status::Completed;
            changes.timers.push(TimerChange::Clear);
            inbox::take(&mut changes, machine, &Inbox::from(inbox), moment).expect("all of the inbox was read");
        }
    }
    let attempts = renamed.into_iter().map(|(_, new)| new).collect();
    Some(Migrated { changes, attempts, waiting, timers })
}

/// Sets the timer of the state that an instance rests in, which code without that timer had it enter: by a call and at a moment, if these
/// are known. Else it is counted from now. `None` where the state has no timer.
pub fn late_timer(machine: &Machine, instance: &Instance, entered: Option<(CallId, Timestamp)>, now: Timestamp) -> Option<Changes> {
    let entered = entered.or(instance.newest.map(|(call, _)| (call, now)))?;
    let timer = begin::timer_of(instance, machine, entered)?;
    Some(Changes { timers: vec![TimerChange::Set(timer)], ..Changes::of(instance.clone()) })
}

fn told_of_call(old: &Attempt, new: &Attempt) -> Vec<String> {
    let catch = |attempt: &Attempt| attempt.budget.policy.as_ref().and_then(|policy| policy.catch.clone());
    let runs = (old.verb != new.verb).then(|| format!("its call of `{}` runs `{}` now", old.verb, new.verb));
    let caught = catch(new).filter(|new| Some(new) != catch(old).as_ref());
    let caught = caught.map(|verb| format!("its call of `{}` is caught by `{verb}` now", new.verb));
    runs.into_iter().chain(caught).collect()
}

impl Renames {
    fn attempt(&self, attempt: &Attempt) -> Option<Attempt> {
        let mut new = attempt.clone();
        replace(&self.verbs, &mut new.verb);
        replace(&self.verbs, &mut new.to);
        replace(&self.events, &mut new.event);
        if let Some(from) = &mut new.from {
            replace(&self.states, from);
        }
        if let Some(catch) = new.budget.policy.as_mut().and_then(|policy| policy.catch.as_mut()) {
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

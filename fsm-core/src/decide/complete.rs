//! The end of an attempt: a transition is made, another attempt is scheduled, or the instance goes to error.

use std::borrow::Cow;
use std::time::Duration;

use super::inbox::NeedsMoreRows;
use super::{DecisionContext, InstanceSnapshot, begin, family, forecast, interrupt, waiting};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, Close, Payload, TimerChange};
use crate::duration::display;
use crate::instance::{Instance, Status};
use crate::machine::{Due, Edge, Machine, Verb};
use crate::outcome::{Event, Outcome, Problem, VerbRequests};
use crate::retry::{Next, RetryAdvice, RetryState};
use crate::search::SearchField;
use crate::time::Timestamp;

/// Decides the consequences of the end of `attempt`. It must be the live attempt of the instance, unchanged since it was claimed.
///
/// The events that a successful verb sends are not part of these changes, because they concern other instances. The caller decides each
/// with `decide::send` in the same transaction.
pub fn complete(
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    attempt: &Attempt,
    outcome: Outcome,
    moment: DecisionContext,
) -> Result<Changes, NeedsMoreRows> {
    // The attempt may have been claimed by a process whose clock is a little ahead. No attempt may end before it began.
    let moment = DecisionContext { now: moment.now.max(attempt.started_at.unwrap_or(moment.now)), ..moment };
    let mut changes = Changes::of(Instance { updated_at: moment.now, is_open: false, ..Instance::clone(&snapshot.instance) });
    match outcome {
        Outcome::Success { record, verb_requests, timer, search } => {
            changes.close = Some(close(attempt, AttemptState::Success, None, moment.now));
            keep_search_fields(&mut changes, machine, search);
            match attempt.is_catch() {
                true => lead_on(&mut changes, machine, snapshot, (record, verb_requests), moment)?,
                false => succeed(&mut changes, machine, snapshot, attempt, (record, verb_requests, timer), moment)?,
            }
        }
        Outcome::Failure(problem) => fail(&mut changes, machine, snapshot, attempt, (AttemptState::Error, problem), moment)?,
        // A lost attempt counts against the budget: a verb that kills its process must not run forever.
        Outcome::Lost => {
            let error = format!("attempt {} was lost: its worker is gone", attempt.number);
            let problem = Problem { error, advice: RetryAdvice::Default };
            fail(&mut changes, machine, snapshot, attempt, (AttemptState::Lost, problem), moment)?;
        }
        Outcome::Snoozed { wait } => match attempt.retry_state.snoozed(wait, moment.now) {
            Some(retry_state) => defer(&mut changes, machine, snapshot, attempt, (AttemptState::Snoozed, wait, retry_state), moment)?,
            None => {
                let problem = Problem { error: too_late_to_snooze(attempt, wait), advice: RetryAdvice::Never };
                fail(&mut changes, machine, snapshot, attempt, (AttemptState::Error, problem), moment)?;
            }
        },
        Outcome::Released => {
            let wait = attempt.scheduled_at.since(moment.now);
            let retry_state = attempt.retry_state.clone();
            defer(&mut changes, machine, snapshot, attempt, (AttemptState::Released, wait, retry_state), moment)?;
        }
    }
    forecast::follow(&mut changes, machine, snapshot);
    Ok(changes)
}

fn close(attempt: &Attempt, becomes: AttemptState, error: Option<String>, now: Timestamp) -> Close {
    Close {
        call: attempt.call,
        number: attempt.number,
        expected: AttemptState::Executing,
        held_by: attempt.worker,
        frees: attempt.limit.clone(),
        becomes,
        finished_at: now,
        error,
    }
}

/// Sets the search fields that the verb returned, and the value for fairness if it is among them.
fn keep_search_fields(changes: &mut Changes, machine: &Machine, search: Vec<SearchField>) {
    if let Some(value) = machine.fair_value(&search) {
        changes.instance.fair_by = Some(value);
    }
    changes.search = search;
}

fn succeed(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    attempt: &Attempt,
    (record, verb_requests, timer): (Option<Vec<u8>>, VerbRequests, Option<Due>),
    moment: DecisionContext,
) -> Result<(), NeedsMoreRows> {
    changes.instance.state = Some(attempt.to.clone());
    // An internal transition does not leave the state.
    if !attempt.is_stay() {
        changes.instance.entered_at = Some(moment.now);
        family::leave_state(changes, machine, snapshot.instance.state.as_deref(), moment.now);
    }
    changes.instance.version += 1;
    if !verb_requests.children.is_empty() {
        family::open_group(changes);
    }
    if record.is_some() {
        changes.instance.record = record;
    }
    if machine.is_end(&attempt.to) {
        changes.instance.status = Status::Completed;
    }
    match attempt.is_stay() {
        // The state was not left, and its timer continues. It was held if it came due during the call.
        true if snapshot.has_timer => changes.timers.push(TimerChange::Release),
        true => {}
        false => begin::change_timers(changes, machine, snapshot.has_timer, timer, moment),
    }
    match verb_requests.next.and_then(|event| Some((edge_for_next(machine, changes, &event)?, event))) {
        Some((edge, event)) => {
            begin::call(changes, machine, edge, moment.fresh, Payload::Bytes(event.payload), moment);
            Ok(())
        }
        None => waiting::take(changes, machine, &snapshot.inbox, moment),
    }
}

/// Ends a successful catch verb. If its next event fits the state, the instance continues with that event. Otherwise it takes an event that
/// interrupts, or is in error with the error of the caught call.
fn lead_on(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    (record, verb_requests): (Option<Vec<u8>>, VerbRequests),
    moment: DecisionContext,
) -> Result<(), NeedsMoreRows> {
    if !verb_requests.children.is_empty() {
        family::open_group(changes);
    }
    if record.is_some() {
        changes.instance.record = record;
    }
    match verb_requests.next.and_then(|event| Some((edge_for_next(machine, changes, &event)?, event))) {
        Some((edge, event)) => {
            changes.instance.error = None;
            begin::call(changes, machine, edge, moment.fresh, Payload::Bytes(event.payload), moment);
        }
        None if interrupt::take(changes, machine, snapshot, moment)? => {}
        None => changes.instance.status = Status::Error,
    }
    Ok(())
}

fn edge_for_next<'m>(machine: &'m Machine, changes: &Changes, event: &Event) -> Option<&'m Edge> {
    machine.edge(changes.instance.state.as_deref(), &event.name)
}

/// Ends an attempt that failed. The retry policy decides what follows, unless a waiting event interrupts the call.
fn fail(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    attempt: &Attempt,
    (becomes, problem): (AttemptState, Problem),
    moment: DecisionContext,
) -> Result<(), NeedsMoreRows> {
    changes.close = Some(close(attempt, becomes, Some(problem.error.clone()), moment.now));
    if !interrupt::take(changes, machine, snapshot, moment)? {
        retry_or_exhaust(changes, machine, attempt, problem, moment);
    }
    Ok(())
}

/// Ends an attempt in which nothing failed. The call runs again after `wait`, unless a waiting event interrupts it.
fn defer(
    changes: &mut Changes,
    machine: &Machine,
    snapshot: &InstanceSnapshot,
    attempt: &Attempt,
    (becomes, wait, retry_state): (AttemptState, Duration, RetryState),
    moment: DecisionContext,
) -> Result<(), NeedsMoreRows> {
    changes.close = Some(close(attempt, becomes, None, moment.now));
    if !interrupt::take(changes, machine, snapshot, moment)? {
        begin::again(changes, machine, attempt, wait, retry_state, moment.now);
    }
    Ok(())
}

fn retry_or_exhaust(changes: &mut Changes, machine: &Machine, attempt: &Attempt, problem: Problem, moment: DecisionContext) {
    match attempt.retry_state.after(problem.advice, moment.now, roll(attempt)) {
        Next::Again { wait, retry_state } => begin::again(changes, machine, attempt, wait, *retry_state, moment.now),
        // The attempts of the catch verb record its own error. The instance keeps the error of the caught call.
        Next::Exhausted(_) if attempt.is_catch() => changes.instance.status = Status::Error,
        // The state and the inbox stay, so that an operator can retry the call.
        Next::Exhausted(_) => {
            changes.instance.error = Some(problem.error.clone());
            match catch_of(machine, attempt) {
                Some(catch) => begin::catch(changes, machine, &catch, attempt, problem.error, moment),
                None => changes.instance.status = Status::Error,
            }
        }
    }
}

/// Returns the catch verb that the call's copy of its policy names. If this code does not have it, a stand-in is returned, and a process
/// that has the verb runs it.
fn catch_of<'m>(machine: &'m Machine, attempt: &Attempt) -> Option<Cow<'m, Verb>> {
    let name = attempt.retry_state.policy.as_ref()?.catch.as_ref()?;
    let elsewhere = || Verb { name: name.clone(), event: format!("Caught<{}>", attempt.event), timeout: None, retry: None, limit: None };
    Some(machine.verb(name).map_or_else(|| Cow::Owned(elsewhere()), Cow::Borrowed))
}

/// The error of an attempt that snoozed beyond the `within` of its policy.
fn too_late_to_snooze(attempt: &Attempt, wait: Duration) -> String {
    let within = attempt.retry_state.policy.as_ref().and_then(|policy| policy.within).map(display).unwrap_or_default();
    format!("snoozed for {}, which ends later than {within} after the first attempt", display(wait))
}

/// A number from 0 up to 1 for jitter. It is pseudo-random over calls and attempts, and always the same for one attempt.
fn roll(attempt: &Attempt) -> f64 {
    let mut mixed = attempt.call.0.as_u64_pair().1 ^ u64::from(attempt.number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

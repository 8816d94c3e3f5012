//! The parts that decisions share: opening a call, opening its next attempt, and setting timers.

use std::sync::Arc;
use std::time::Duration;

use super::DecisionContext;
use crate::call::{Attempt, AttemptState, is_caught};
use crate::changes::{Changes, Note, NoteKind, Open, Payload, Timer, TimerChange};
use crate::ids::{CallId, SessionId, TimerId};
use crate::instance::Instance;
use crate::machine::{Due, Edge, Machine, TIMEOUT, Verb, Wait};
use crate::outcome::Event;
use crate::priority::Priority;
use crate::retry::RetryState;
use crate::time::Timestamp;
use uuid::Uuid;

/// Opens a call for `edge` with a normal priority. It executes at once in the session that `moment` grants; otherwise it is scheduled for now.
pub(super) fn call(changes: &mut Changes, machine: &Machine, edge: &Edge, call: CallId, payload: Payload, moment: DecisionContext) {
    call_with(changes, machine, edge, (call, Priority::Normal), payload, moment);
}

/// The same with the priority of a send.
pub(super) fn call_with(
    changes: &mut Changes,
    machine: &Machine,
    edge: &Edge,
    call: (CallId, Priority),
    payload: Payload,
    moment: DecisionContext,
) {
    run(changes, machine, (edge.verb(), &edge.event, &edge.to), call, payload, moment);
}

/// Opens a call of the catch verb for the exhausted call that `last` belongs to, with the same priority.
pub(super) fn catch(changes: &mut Changes, machine: &Machine, catch: &Verb, last: &Attempt, error: String, moment: DecisionContext) {
    let payload = Payload::Caught { call: last.call, error, attempts: last.number };
    // The event's name distinguishes a catch verb from the verb of an internal transition, also where the code has another name for the type.
    let event = if is_caught(&catch.event) { catch.event.clone() } else { format!("Caught<{}>", last.event) };
    run(changes, machine, (&catch.name, &event, &last.to), (moment.fresh, last.priority), payload, moment);
}

fn run(
    changes: &mut Changes,
    machine: &Machine,
    (verb, event, to): (&str, &str, &str),
    (call, priority): (CallId, Priority),
    payload: Payload,
    moment: DecisionContext,
) {
    let known = machine.verb(verb);
    let policy = known.and_then(|verb| verb.retry.clone());
    let attempt = Attempt {
        call,
        number: 1,
        instance: changes.instance.id,
        machine: changes.instance.machine.clone(),
        verb: verb.to_owned(),
        event: event.to_owned(),
        from: changes.instance.state.clone(),
        to: to.to_owned(),
        state: AttemptState::Scheduled,
        held: changes.instance.paused,
        created_at: moment.now,
        scheduled_at: moment.now,
        retry_state: RetryState::fresh(policy, moment.now),
        worker: None,
        started_at: None,
        finished_at: None,
        error: None,
        previous: changes.instance.newest.map(|(call, _)| call),
        priority,
        limit: known.and_then(|verb| verb.limit.clone()),
    };
    // A verb that this process's code does not have is left to a process that has it. A limit admits calls only when they are claimed, where
    // all processes take turns. A low call passes no call that waits already, so it is claimed too.
    let is_claimed = attempt.limit.is_some() || priority == Priority::Low;
    let grant = moment.grant.filter(|_| !changes.instance.paused && known.is_some() && !is_claimed);
    open(changes, granted(attempt, grant, moment.now), Some(payload));
}

/// Opens the next attempt of the call that `last` belongs to. It is due after `wait`, and has the limit that its verb has now.
pub(super) fn again(changes: &mut Changes, machine: &Machine, last: &Attempt, wait: Duration, retry_state: RetryState, now: Timestamp) {
    let attempt = Attempt {
        number: last.number.saturating_add(1),
        state: AttemptState::Scheduled,
        held: changes.instance.paused,
        created_at: now,
        scheduled_at: now + wait,
        retry_state,
        worker: None,
        started_at: None,
        finished_at: None,
        error: None,
        limit: machine.verb(&last.verb).map_or_else(|| last.limit.clone(), |verb| verb.limit.clone()),
        ..last.clone()
    };
    // An attempt of another call than the newest one brings its payload: the row has that of the newest.
    let is_same = changes.instance.newest.is_some_and(|(call, _)| call == last.call);
    open(changes, attempt, if is_same { None } else { Some(Payload::Again(last.call)) });
}

fn granted(attempt: Attempt, grant: Option<SessionId>, now: Timestamp) -> Attempt {
    match grant {
        Some(session) => Attempt { state: AttemptState::Executing, worker: Some(session), started_at: Some(now), ..attempt },
        None => attempt,
    }
}

fn open(changes: &mut Changes, attempt: Attempt, payload: Option<Payload>) {
    changes.instance.newest = Some((attempt.call, attempt.number));
    changes.instance.is_open = true;
    changes.open = Some(Open { attempt: Arc::new(attempt), payload });
}

/// Replaces the timers after a transition into a state. All timers of the old state are deleted, including those that other code set, and
/// the timer of the new state is set. `computed` is the result of the timer's function if it has one.
pub(super) fn change_timers(changes: &mut Changes, machine: &Machine, has_timer: bool, computed: Option<Due>, moment: DecisionContext) {
    if has_timer {
        changes.timers.push(TimerChange::Clear);
    }
    let entered = changes.instance.newest.map(|(call, _)| (call, moment.now));
    changes.timers.extend(entered.and_then(|entered| timer_of(&changes.instance, machine, entered, computed)).map(TimerChange::Set));
}

/// Returns the timer of the state that the instance entered by `call` at `since`; `None` if the state has no timer, or a computed one whose
/// result is missing.
pub(super) fn timer_of(instance: &Instance, machine: &Machine, (call, since): (CallId, Timestamp), computed: Option<Due>) -> Option<Timer> {
    let state = instance.state.as_deref()?;
    let due_at = match machine.timer(state)?.after.as_ref()? {
        Wait::Fixed(wait) => since + *wait,
        Wait::Computed(_) => match computed? {
            Due::After(wait) => since + wait,
            Due::At(time) => time,
        },
    };
    Some(Timer {
        id: state_timer(call),
        instance: instance.id,
        state: Some(state.to_owned()),
        event: timeout_in(state, due_at),
        due_at,
        priority: Priority::Normal,
    })
}

/// The id of a state timer, derived from the call that entered the state. A delayed send's timer has the id of its call. The two ids must
/// differ, or a process that read the delayed send's timer before it fired would find the state timer in its place. Therefore this id has
/// UUID version 8.
fn state_timer(call: CallId) -> TimerId {
    TimerId(Uuid::from_u128(call.0.as_u128() ^ (0xF << 76)))
}

/// Returns a wake-up timer that is due at once. A process whose code has the event and the state then takes the event. The timer id is not
/// the id of a call.
pub(super) fn wake(instance: &Instance, event: &str, moment: DecisionContext) -> Timer {
    let event = Event { name: event.to_owned(), payload: Vec::new() };
    Timer {
        id: TimerId(moment.fresh.0),
        instance: instance.id,
        state: instance.state.clone(),
        event,
        due_at: moment.now,
        priority: Priority::Normal,
    }
}

/// Returns the event of a state timer.
pub(super) fn timeout_in(state: &str, due_at: Timestamp) -> Event {
    let payload = format!(r#"{{"state":"{state}","due_at":{}}}"#, due_at.as_micros()).into_bytes();
    Event { name: TIMEOUT.to_owned(), payload }
}

/// Returns a history entry.
pub(super) fn note(instance: &Instance, kind: NoteKind, call: Option<CallId>, detail: Option<String>, at: Timestamp) -> Note {
    Note { instance: instance.id, at, kind, call, detail, actor: None }
}

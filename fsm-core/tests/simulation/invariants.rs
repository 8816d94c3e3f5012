//! The invariants I1 to I19 over the model, as `INVARIANTS` of `fsm-store/src/sql/invariants.rs` states them over the tables.

use fsm_core::call::{Attempt, AttemptState as State};
use fsm_core::changes::NoteKind;
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::Machine;

use crate::model::promise::{Broken, Promise};
use crate::model::store::Store;

/// The first invariant that does not hold.
pub fn check(store: &Store, machine: &Machine) -> Result<(), Broken> {
    for instance in store.instances.values() {
        instance_is_whole(store, instance)?;
        its_transitions_are_a_chain(store, machine, instance)?;
        its_inbox_is_dense(store, instance)?;
        what_is_foreseen_is_so(store, machine, instance)?;
        no_interrupt_waits(store, machine, instance)?;
    }
    calls_are_whole(store)?;
    each_line_has_one_time(store)?;
    what_executes_is_logged(store)?;
    requests_and_timers_are_whole(store)
}

fn broken<T>(promise: Promise, instance: &str, kind: impl std::fmt::Display) -> Result<T, Broken> {
    promise.broken(format!("`{instance}` {kind}"))
}

/// I1, I4, I5.
fn instance_is_whole(store: &Store, instance: &Instance) -> Result<(), Broken> {
    let newest = instance.newest.and_then(|id| store.attempt(id));
    let live: Vec<&Attempt> = store.live().filter(|live| live.instance == instance.id).collect();
    if instance.is_open && newest.is_none_or(|newest| !newest.state.is_live()) {
        return broken(Promise::I1, &instance.key, "is open without a live attempt");
    }
    if live.iter().any(|live| !instance.is_open || instance.newest != Some((live.call, live.number))) {
        return broken(Promise::I4, &instance.key, "has a live attempt that is not what it has open");
    }
    let state = newest.map(|newest| newest.state);
    let is_exhausted =
        matches!(state, Some(State::Error | State::Lost)) || newest.is_some_and(|n| n.state == State::Success && n.is_catch());
    let ends = |kind| matches!(kind, NoteKind::Skipped | NoteKind::Interrupted);
    let is_skipped = || store.notes.iter().any(|note| ends(note.kind) && note.call == instance.newest.map(|(call, _)| call));
    let rests_after_an_end = matches!(state, Some(State::Error | State::Lost | State::Released | State::Cancelled | State::Snoozed));
    if (instance.status == Status::Error && !is_exhausted) || (instance.status == Status::Running && rests_after_an_end && !is_skipped()) {
        return broken(Promise::I5, &instance.key, format!("is {} and its newest attempt is {state:?}", instance.status));
    }
    Ok(())
}

/// I6, I7, I8.
fn its_transitions_are_a_chain(store: &Store, machine: &Machine, instance: &Instance) -> Result<(), Broken> {
    let mut chain = Vec::new();
    let mut next = instance.newest.map(|(call, _)| call);
    for _ in 0..=store.calls.len() {
        let Some(call) = next else { break };
        chain.extend(store.attempts_of(call).map(|row| &row.attempt).find(|a| a.state == State::Success && !a.is_catch()));
        next = store.attempt((call, 1)).and_then(|first| first.previous);
    }
    chain.reverse();
    if instance.version != i64::try_from(chain.len()).unwrap_or(-1) || instance.state.as_ref() != chain.last().map(|last| &last.to) {
        return broken(
            Promise::I6,
            &instance.key,
            format!("has version {} in {:?} after {} transitions", instance.version, instance.state, chain.len()),
        );
    }
    let all =
        store.calls.values().map(|row| &row.attempt).filter(|a| a.instance == instance.id && a.state == State::Success && !a.is_catch());
    if all.count() != chain.len() {
        return broken(Promise::I7, &instance.key, "has a transition that is not in its chain");
    }
    let mut at: Option<&String> = None;
    for step in chain {
        if step.from.as_ref() != at {
            return broken(Promise::I7, &instance.key, format!("went from {:?} and was in {at:?}", step.from));
        }
        if !machine.edges.iter().any(|edge| edge.from == step.from && edge.to == step.to && edge.event == step.event) {
            return broken(Promise::I8, &instance.key, format!("has no edge from {:?} to {} on {}", step.from, step.to, step.event));
        }
        at = Some(&step.to);
    }
    Ok(())
}

/// I13, and that no event waits for a free instance.
fn its_inbox_is_dense(store: &Store, instance: &Instance) -> Result<(), Broken> {
    let positions: Vec<i64> = store.waiting(instance.id).iter().map(|waiting| waiting.position).collect();
    if positions != (instance.inbox_head..instance.inbox_tail).collect::<Vec<_>>() {
        return broken(
            Promise::I13,
            &instance.key,
            format!("has {positions:?} waiting from {} to {}", instance.inbox_head, instance.inbox_tail),
        );
    }
    let is_free = instance.status == Status::Running && !instance.is_open;
    if (is_free || instance.status.is_ended()) && !positions.is_empty() {
        return broken(Promise::I13, &instance.key, format!("is {} and free, and events wait", instance.status));
    }
    Ok(())
}

/// An event that interrupts may wait only for an executing attempt, or for a first attempt that was due when the event came.
fn no_interrupt_waits(store: &Store, machine: &Machine, instance: &Instance) -> Result<(), Broken> {
    let newest = instance.newest.and_then(|id| store.attempt(id));
    let is_retried = instance.is_open && newest.is_some_and(|newest| newest.state == State::Scheduled && newest.number > 1);
    let interrupts = |event: &str| machine.edge(instance.state.as_deref(), event).is_some_and(|edge| edge.interrupts);
    let waiting = store.waiting(instance.id);
    match waiting.iter().find(|waiting| interrupts(&waiting.event)) {
        Some(waiting) if is_retried || instance.status == Status::Error => {
            broken(Promise::InterruptDoesNotWait, &instance.key, format!("has a retry or is in error, and `{}` waits", waiting.event))
        }
        _ => Ok(()),
    }
}

/// The stored forecast of an inbox equals the states that all waiting events lead to.
fn what_is_foreseen_is_so(store: &Store, machine: &Machine, instance: &Instance) -> Result<(), Broken> {
    let waiting = store.inbox.range((instance.id, i64::MIN)..=(instance.id, i64::MAX));
    let Some(forecast) = waiting.clone().next_back().and_then(|(_, waits)| waits.forecast.as_ref()) else { return Ok(()) };
    let to = instance.newest.and_then(|id| store.attempt(id)).map(|newest| (Some(newest.to.clone()), newest.is_catch()));
    let mut states = match to {
        Some((to, false)) if instance.is_open => vec![to],
        Some((to, _)) if instance.is_open || instance.status == Status::Error => vec![instance.state.clone(), to],
        _ => vec![instance.state.clone()],
    };
    for (_, waits) in waiting {
        let led = |state: Option<String>| machine.edge(state.as_deref(), &waits.event.name).map_or(state, |edge| Some(edge.to.clone()));
        states = states.into_iter().map(led).collect();
    }
    states.sort();
    states.dedup();
    if forecast.states != states {
        return broken(Promise::OutlookIsTrue, &instance.key, format!("will be in {states:?}, and {:?} is foreseen", forecast.states));
    }
    Ok(())
}

/// I19.
fn what_executes_is_logged(store: &Store) -> Result<(), Broken> {
    let unlisted = store.live().find(|attempt| attempt.state == State::Executing && !store.is_logged(attempt));
    unlisted
        .map_or(Ok(()), |attempt| broken(Promise::I19, store.key_of(attempt.instance), "executes in a session whose log does not have it"))
}

/// I2, I3, I9, I10, I11, I12, I15.
fn calls_are_whole(store: &Store) -> Result<(), Broken> {
    let mut rows = store.calls.values().map(|row| &row.attempt).peekable();
    let mut call: Vec<&Attempt> = Vec::new();
    while let Some(attempt) = rows.next() {
        call.push(attempt);
        if rows.peek().is_none_or(|next| next.call != attempt.call) {
            call_is_whole(store, &call)?;
            call.clear();
        }
    }
    Ok(())
}

fn call_is_whole(store: &Store, call: &[&Attempt]) -> Result<(), Broken> {
    let (first, last) = (call[0], call[call.len() - 1]);
    let wrong = |promise: Promise, kind: String| broken(promise, store.key_of(first.instance), format!("in `{}` {kind}", first.verb));
    let by_hand = store.notes.iter().filter(|note| note.kind == NoteKind::Retried && note.call == Some(first.call)).count();
    let is_touched =
        store.notes.iter().any(|note| matches!(note.kind, NoteKind::Retried | NoteKind::Rescheduled) && note.call == Some(first.call));
    if call[..call.len() - 1].iter().any(|attempt| attempt.state.is_live()) {
        return wrong(Promise::I2, "has a live attempt before its last one".into());
    }
    if call.iter().filter(|attempt| attempt.state == State::Success).count() > 1 {
        return wrong(Promise::I3, "succeeded twice".into());
    }
    if first.number != 1 || last.number as usize != call.len() {
        return wrong(Promise::I9, format!("has {} attempts up to {}", call.len(), last.number));
    }
    let failed: Vec<_> = call.iter().filter(|attempt| matches!(attempt.state, State::Error | State::Lost)).collect();
    let most = |attempt: &Attempt| attempt.retry_state.policy.as_ref().map_or(1, |policy| policy.max_attempts.unwrap_or(u32::MAX));
    let retry_state = failed.iter().map(|attempt| most(attempt)).max().unwrap_or(0) as usize;
    if failed.len() > retry_state.saturating_mul(1 + by_hand) {
        return wrong(Promise::I10, format!("failed {} times on a budget of {retry_state} and {by_hand} retries by hand", failed.len()));
    }
    for (n, attempt) in call.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| call[n]);
        let snoozes = call[..n].iter().filter(|before| before.state == State::Snoozed).count();
        let used = |before: &Attempt| (before.retry_state.remaining, before.retry_state.backoff);
        let is_charged = before.is_some_and(|before| before.state == State::Snoozed && used(before) != used(attempt));
        if attempt.retry_state.snoozes as usize != snoozes || (is_charged && !is_touched) {
            return wrong(Promise::SnoozeUsesNoRetry, format!("has snoozed {snoozes} times before attempt {}", attempt.number));
        }
        let waited =
            before.filter(|b| b.state == State::Lost || (b.state == State::Error && attempt.retry_state.backoff > b.retry_state.backoff));
        let due = before.and_then(|before| before.finished_at);
        let is_early = due.is_some_and(|end| attempt.scheduled_at < end)
            || (!is_touched && waited.zip(due).is_some_and(|(b, end)| attempt.scheduled_at < end + b.retry_state.backoff));
        if is_early || attempt.started_at.is_some_and(|started| started < attempt.scheduled_at) {
            return wrong(Promise::I11, format!("began or was due too early, in attempt {}", attempt.number));
        }
        let started = attempt.started_at.unwrap_or(attempt.created_at);
        if started < attempt.created_at
            || attempt.finished_at.is_some_and(|end| end < started)
            || attempt.finished_at.is_none() != attempt.state.is_live()
        {
            return wrong(Promise::I12, format!("has times in disorder, in attempt {}", attempt.number));
        }
        let needs_a_session = !matches!(attempt.state, State::Scheduled | State::Cancelled);
        if attempt.worker.is_none() != attempt.started_at.is_none() || (needs_a_session && attempt.worker.is_none()) {
            return wrong(Promise::I15, format!("attempt {} is {} and was never given to a session", attempt.number, attempt.state));
        }
    }
    Ok(())
}

/// I17.
fn each_line_has_one_time(store: &Store) -> Result<(), Broken> {
    for (place, waiting) in store.outbox.iter().enumerate() {
        let key = &waiting.outgoing.key;
        let is_first = store.outbox[..place].iter().all(|before| before.outgoing.key != *key);
        if waiting.due_at.is_some() != is_first {
            return broken(Promise::I17, key, format!("has an event in the outbox that is delivered next at {:?}", waiting.due_at));
        }
    }
    Ok(())
}

/// I14, I16.
fn requests_and_timers_are_whole(store: &Store) -> Result<(), Broken> {
    let mut answers = std::collections::BTreeSet::new();
    for ((instance, dedup), request) in &store.requests {
        if !store.instances.contains_key(instance) || !answers.insert(request.call) {
            return broken(
                Promise::I14,
                store.key_of(*instance),
                format!("answers to {} with a call that answers to another id too", dedup.escape_debug()),
            );
        }
    }
    for (timer, _) in store.timers.values() {
        let Some(instance) = store.instances.get(&timer.instance) else {
            return broken(Promise::I16, "?", "has a timer and is no instance");
        };
        if timer.state.is_some() && (timer.state != instance.state || instance.status.is_ended()) {
            return broken(Promise::I16, &instance.key, format!("is in {:?} and has a timer of {:?}", instance.state, timer.state));
        }
    }
    Ok(())
}

//! Regression tests: wrong decisions that the simulation found, each as the smallest case.

use std::sync::Arc;
use std::time::Duration;

use super::operate::{Act, Operation, operate};
use super::tests::{after, at, begun, call, claimed, ended, failure, in_error, machine, moment, request, sent, success, unborn};
use super::{DecisionContext, InstanceSnapshot};
use crate::changes::{Changes, TimerChange};
use crate::ids::TimerId;

fn asked(snapshot: InstanceSnapshot, act: Act, request: Option<&str>, now: DecisionContext) -> Changes {
    let request = request.map(|id| (id.to_owned(), b"digest".to_vec()));
    let operation = Operation { act, reason: None, actor: None, request };
    operate(&machine(), &snapshot, operation, now).unwrap().unwrap().unwrap()
}

#[test]
fn an_act_with_an_id_answers_to_no_call_of_a_sender() {
    let changes = asked(begun(), Act::Pause, Some("p-1"), moment(1));
    assert_eq!(changes.request.unwrap().call, moment(1).fresh);
    assert_eq!(changes.notes[0].call, Some(call(1)));
}

#[test]
fn an_operator_whose_clock_is_behind_ends_nothing_before_it_began() {
    let created_later = after(&sent(unborn(), request(1, "Created"), 60).unwrap().changes.unwrap());
    let skipped = asked(created_later.clone(), Act::Skip, None, moment(0));
    assert_eq!(skipped.close.unwrap().finished_at, at(60));

    let executing = InstanceSnapshot { newest: Some(claimed(&created_later, 61).into()), ..created_later };
    let cancelled = asked(executing, Act::Cancel, None, moment(0));
    assert_eq!(cancelled.close.unwrap().finished_at, at(61));
}

#[test]
fn an_operator_whose_clock_is_behind_retries_no_earlier_than_the_last_end() {
    let mut exhausted = in_error();
    let newest = exhausted.newest.as_mut().map(Arc::make_mut).unwrap();
    newest.finished_at = Some(at(900));
    assert_eq!(asked(exhausted, Act::Retry, None, moment(0)).open.unwrap().attempt.scheduled_at, at(900));

    let waits = after(&ended(&begun(), failure(), 7));
    assert_eq!(asked(waits, Act::Retry, None, moment(0)).close.unwrap().finished_at, at(7));
}

/// Two processes see the timer of a delayed event due. One of them delivers the event, its verb runs, and the new state has a timer. The
/// other process must not mistake that timer for the first one and deliver the event again.
#[test]
fn a_states_timer_is_never_taken_for_the_delayed_event_that_entered_it() {
    let entered = ended(&begun(), success(), 3);
    let [TimerChange::Set(timer)] = &entered.timers[..] else { panic!("`created` has a timer: {:?}", entered.timers) };
    assert_eq!(timer.due_at, at(3) + Duration::from_secs(1800));
    assert_ne!(timer.id, TimerId(call(1).0));
}

//! Tests of the inbox: the number of waiting events that a decision reads, and the events that are left for other code.

use std::sync::Arc;

use crate::changes::{Changes, Forecast, TimerChange, Waiting};
use crate::decide::complete::complete;
use crate::decide::fire::fire;
use crate::decide::inbox::{Inbox, NeedsMoreRows};
use crate::decide::operate::{Act, Operation, operate};
use crate::decide::send::{Send, SendOutcome, send};
use crate::decide::tests::{SESSION, begun, call, claimed, ended, failure, machine, moment, request, rests_in_created, sent, success};
use crate::decide::{DecisionContext, InstanceSnapshot};
use crate::instance::Instance;
use crate::machine::{Edge, Machine};
use crate::outcome::{Event, Outcome, VerbRequests};
use crate::priority::Priority;

/// A machine in which `Note` leads from `noted` to `noted`, so that many events can wait.
fn looping() -> Machine {
    let mut machine = machine();
    let edge = |from: &str, event: &str, to: &str| Edge::new(Some(from), event, to);
    machine.edges.extend([edge("paid", "Note", "noted"), edge("noted", "Note", "noted"), edge("created", "Note", "noted")]);
    machine
}

fn waits(positions: std::ops::Range<i64>, event: &str) -> Vec<Waiting> {
    positions
        .map(|position| Waiting {
            position,
            call: call(100 + position.unsigned_abs() as u128),
            event: event.into(),
            priority: Priority::Normal,
        })
        .collect()
}

/// A snapshot with a thousand waiting events, of which the first `first` were read.
fn thousand(first: i64, forecast: Option<Forecast>) -> InstanceSnapshot {
    let mut snapshot = begun();
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 1000;
    snapshot.inbox = Inbox { first: waits(0..first, "Note"), forecast };
    snapshot
}

#[test]
fn a_send_needs_what_is_foreseen_and_else_all_that_waits() {
    let machine = looping();
    let foreseen = |graph| Some(Forecast { graph, states: vec![Some("noted".into())] });
    let full = |snapshot: &InstanceSnapshot| send(&machine, snapshot, Send { inbox_limit: 2000, ..request(2, "Note") }, moment(5));
    let waits = full(&thousand(8, foreseen(machine.graph()))).unwrap().unwrap().changes.unwrap().waits.unwrap();
    assert_eq!((waits.position, waits.forecast), (1000, foreseen(machine.graph())));
    assert_eq!(full(&thousand(8, None)), Err(NeedsMoreRows));
    assert_eq!(full(&thousand(8, foreseen(7))), Err(NeedsMoreRows), "the forecast was made with another graph");
    assert_eq!(full(&thousand(1000, None)).unwrap().unwrap().changes.unwrap().waits.unwrap().forecast, foreseen(machine.graph()));
}

#[test]
fn what_is_foreseen_holds_where_another_way_joins_and_is_struck_out_where_it_is_not_seen_to() {
    let next = |name: &str| Outcome::Success {
        record: None,
        verb_requests: VerbRequests { next: Some(Event { name: name.into(), payload: b"1".to_vec() }), ..VerbRequests::default() },
        timer: None,
        search: Vec::new(),
    };
    let machine = looping();
    let ended = |snapshot: &InstanceSnapshot, outcome| complete(&machine, snapshot, &claimed(snapshot, 4), outcome, moment(4)).unwrap();
    assert!(!ended(&thousand(8, None), next("Paid")).is_forecast_stale, "`paid` takes the first of them too");
    assert!(ended(&thousand(8, None), next("Cancel")).is_forecast_stale, "`cancelled` takes none of those that were read");
    assert!(!ended(&thousand(8, None), success()).is_forecast_stale);
    assert!(!ended(&thousand(8, None), failure()).is_forecast_stale);
    let of_another = Some(Forecast { graph: 7, states: vec![Some("noted".into())] });
    assert!(ended(&thousand(8, of_another), success()).is_forecast_stale, "this graph cannot follow the forecast");
}

#[test]
fn an_ended_instance_needs_all_that_waits_and_one_that_goes_on_the_first() {
    let machine = looping();
    let cancelled = operate(&machine, &thousand(8, None), cancel(), moment(5));
    assert_eq!(cancelled, Err(NeedsMoreRows));
    let whole = operate(&machine, &thousand(1000, None), cancel(), moment(5)).unwrap().unwrap().unwrap();
    assert_eq!((whole.notes.len(), whole.inbox_taken), (1001, Some(0..1000)));
    let mut unfit = thousand(8, None);
    unfit.inbox.first = waits(0..8, "Completed");
    assert_eq!(complete(&machine, &unfit, &claimed(&unfit, 4), success(), moment(4)), Err(NeedsMoreRows), "the first eight are rejected");
}

fn cancel() -> Operation {
    Operation { act: Act::Cancel, reason: None, actor: None, request: None }
}

#[test]
fn an_event_that_fits_the_state_kept_by_an_open_catch_waits() {
    let mut caught = InstanceSnapshot { newest: begun().newest, ..rests_in_created() };
    Arc::make_mut(&mut caught.instance).is_open = true;
    let newest = caught.newest.as_mut().map(Arc::make_mut).unwrap();
    (newest.verb, newest.event, newest.to) = ("rescued".into(), "Caught<Paid>".into(), "paid".into());
    for event in ["Paid", "Cancel", "Completed"] {
        assert_eq!(sent(caught.clone(), request(3, event), 6).unwrap().outcome, SendOutcome::Queued, "{event}");
    }
    assert!(sent(caught, request(3, "Created"), 6).is_err());
}

#[test]
fn what_a_definition_cannot_judge_is_left_for_one_that_can() {
    // The first event in the inbox exists only in newer code.
    let mut snapshot = begun();
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 2;
    snapshot.inbox = [waits(0..1, "Refund"), waits(1..2, "Paid")].concat().into();
    let left = ended(&snapshot, success(), 4);
    assert_eq!((&left.open, left.instance.inbox_len(), left.notes.len()), (&None, 2, 0));
    let wake = |changes: &Changes| {
        changes.timers.iter().find_map(|change| match change {
            TimerChange::Set(timer) if timer.is_wake() => Some(timer.clone()),
            _ => None,
        })
    };
    assert_eq!(wake(&left).unwrap().event.name, "Refund");

    // Newer code takes that event. The event behind it still waits.
    let mut newer = machine();
    newer.edges.push(Edge::new(Some("created"), "Refund", "cancelled"));
    let rests = InstanceSnapshot { inbox: snapshot.inbox.clone(), ..InstanceSnapshot::of(left.instance.clone()) };
    let taken = fire(&newer, &rests, wake(&left).unwrap(), moment(5)).unwrap();
    assert_eq!((taken.open.unwrap().attempt.call, taken.instance.inbox_len()), (call(100), 1));

    // An event that is sent to the free instance waits behind it.
    assert_eq!(sent(rests, request(9, "Cancel"), 6).unwrap().outcome, SendOutcome::Queued);

    // For a state that only newer code has, every event that this code has may fit.
    let elsewhere = InstanceSnapshot::of(Instance { state: Some("refunded".into()), ..Arc::unwrap_or_clone(rests_in_created().instance) });
    let queued = sent(elsewhere.clone(), request(9, "Paid"), 6).unwrap();
    assert_eq!((queued.outcome, wake(&queued.changes.unwrap()).unwrap().event.name), (SendOutcome::Queued, "Paid".to_owned()));
    let impatient = sent(elsewhere, Send { reject_if_busy: true, ..request(9, "Paid") }, 6).unwrap_err().to_string();
    assert_eq!(impatient, "`payment` `order-7` is busy: its state is one that this process's code does not have");
}

#[test]
fn a_catch_verb_that_only_other_code_has_is_left_to_that() {
    let mut snapshot = begun();
    let retry_state = &mut snapshot.newest.as_mut().map(Arc::make_mut).unwrap().retry_state;
    retry_state.remaining = Some(0);
    retry_state.policy.as_mut().unwrap().catch = Some("rescued".into());
    let granted = DecisionContext { grant: Some(SESSION), ..moment(4) };
    let attempt = complete(&machine(), &snapshot, &claimed(&snapshot, 4), failure(), granted).unwrap().open.unwrap().attempt;
    assert_eq!(attempt.worker, None, "it is not handed to this process");
    assert_eq!((attempt.verb.as_str(), attempt.event.as_str(), attempt.is_catch()), ("rescued", "Caught<Created>", true));
}

#[test]
fn an_act_that_finds_things_so_already_is_remembered_under_its_id() {
    let paused = InstanceSnapshot::of(Instance { paused: true, ..Arc::unwrap_or_clone(rests_in_created().instance) });
    let request = Some(("p-1".to_owned(), vec![1]));
    let operation = Operation { act: Act::Pause, reason: None, actor: None, request };
    let changes = operate(&machine(), &paused, operation, moment(9)).unwrap().unwrap().unwrap();
    assert_eq!((changes.request.unwrap().dedup, changes.notes.len(), &changes.instance), ("p-1".to_owned(), 0, &*paused.instance));
}

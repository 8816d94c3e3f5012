//! Decisions about events that interrupt, and about internal transitions.

use super::*;
use crate::decide::inbox::NeedsMoreRows;

/// The payment machine with an event that interrupts in `created`, an internal transition, and a `Note` that waits like any other.
fn impatient() -> Machine {
    let mut machine = machine();
    let verb = |name: &str, event: &str| Verb { name: name.into(), event: event.into(), timeout: None, retry: None, limit: None };
    machine.verbs.extend([verb("stopped", "Stop"), verb("touched", "Touch"), verb("noted", "Note")]);
    machine.edges.extend([
        Edge::new(Some("created"), "Stop", "stopped").interrupting(),
        Edge::stay("created", "Touch", "touched"),
        Edge::new(Some("paid"), "Note", "noted"),
    ]);
    machine
}

/// A snapshot in `created` with an open call of this event, whose attempt is in this state.
fn busy(event: &str, state: AttemptState) -> InstanceSnapshot {
    let begun = send(&impatient(), &rests_in_created(), request(2, event), moment(2)).unwrap().unwrap();
    let mut snapshot = after(&begun.changes.unwrap());
    let newest = snapshot.newest.as_mut().map(Arc::make_mut).expect("a call is open");
    newest.state = state;
    if state == AttemptState::Executing {
        (newest.worker, newest.started_at) = (Some(SESSION), Some(at(3)));
    }
    snapshot
}

fn arrive(snapshot: &InstanceSnapshot, send_it: Send) -> Result<Accepted, Refusal> {
    send(&impatient(), snapshot, send_it, moment(5)).unwrap()
}

fn complete_with(snapshot: &InstanceSnapshot, outcome: Outcome) -> Result<Changes, NeedsMoreRows> {
    let attempt = snapshot.newest.as_deref().expect("a call is open").clone();
    complete(&impatient(), snapshot, &attempt, outcome, moment(6))
}

fn waiting(snapshot: &mut InstanceSnapshot, events: &[&str]) {
    let all = events.iter().enumerate();
    let one = |(n, event): (usize, &&str)| Waiting {
        position: n as i64,
        call: call(20 + n as u128),
        event: (*event).into(),
        priority: Priority::Normal,
    };
    snapshot.inbox = all.map(one).collect::<Vec<_>>().into();
    Arc::make_mut(&mut snapshot.instance).inbox_tail = events.len() as i64;
}

#[test]
fn a_scheduled_attempt_is_cancelled_and_the_event_is_taken() {
    let snapshot = busy("Paid", AttemptState::Scheduled);
    let accepted = arrive(&snapshot, Send { reject_if_busy: true, ..request(3, "Stop") }).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!(accepted.outcome, SendOutcome::Started);
    assert_eq!(changes.close.map(|close| (close.expected, close.becomes)), Some((AttemptState::Scheduled, AttemptState::Cancelled)));
    assert_eq!(changes.open.map(|open| open.attempt.verb.clone()).as_deref(), Some("stopped"));
    let note = &changes.notes[0];
    assert_eq!((note.kind, note.call), (NoteKind::Interrupted, Some(call(2))));
    assert_eq!(note.detail.as_deref(), Some("`Stop` ended the call of `paid` after attempt 1"));
}

#[test]
fn an_executing_attempt_is_not_touched_and_the_event_goes_to_the_front() {
    let mut snapshot = busy("Paid", AttemptState::Executing);
    let alone = arrive(&snapshot, request(3, "Stop")).unwrap();
    assert_eq!((alone.outcome, alone.changes.unwrap().waits.unwrap().position), (SendOutcome::Queued, 0));

    waiting(&mut snapshot, &["Note", "Note"]);
    let full = |id, event| Send { inbox_limit: 2, ..request(id, event) };
    let changes = arrive(&snapshot, full(3, "Stop")).unwrap().changes.unwrap();
    assert_eq!((changes.close.clone(), changes.open.clone()), (None, None));
    let waits = changes.waits.clone().unwrap();
    assert_eq!((waits.position, changes.instance.inbox_head, changes.instance.inbox_tail), (-1, -1, 2));
    assert!(changes.is_forecast_stale && waits.forecast.is_none() && !changes.only_adds());

    snapshot.apply(changes);
    assert_eq!(snapshot.inbox.first.iter().map(|waiting| waiting.position).collect::<Vec<_>>(), [-1, 0, 1]);
    let refused = arrive(&snapshot, full(4, "Stop")).unwrap_err();
    assert!(refused.to_string().contains("its inbox is full"), "{refused}");
    let second = arrive(&snapshot, request(4, "Stop")).unwrap().changes.unwrap().waits.unwrap();
    assert_eq!(second.position, 2, "the second one keeps its place behind the first");
    let refused = arrive(&snapshot, Send { reject_if_busy: true, ..request(5, "Stop") }).unwrap_err();
    assert!(matches!(refused, Refusal::Busy { .. }), "{refused}");
}

#[test]
fn after_a_failure_the_event_is_taken_and_after_a_success_it_must_fit() {
    let mut snapshot = busy("Paid", AttemptState::Executing);
    waiting(&mut snapshot, &["Stop", "Note"]);
    for outcome in [failure(), Outcome::Lost, Outcome::Released] {
        let changes = complete_with(&snapshot, outcome).unwrap();
        assert_eq!((changes.instance.status, changes.instance.state.as_deref()), (Status::Running, Some("created")));
        assert_eq!(changes.open.map(|open| open.attempt.verb.clone()).as_deref(), Some("stopped"));
        assert_eq!((changes.notes[0].kind, changes.inbox_taken), (NoteKind::Interrupted, Some(0..1)));
    }
    let changes = complete_with(&snapshot, success()).unwrap();
    assert_eq!(changes.instance.state.as_deref(), Some("paid"));
    assert_eq!((changes.notes[0].kind, changes.notes[0].call), (NoteKind::Rejected, Some(call(20))));
    assert_eq!(changes.open.map(|open| open.attempt.verb.clone()).as_deref(), Some("noted"));
}

#[test]
fn a_failure_reads_the_whole_inbox_only_where_an_edge_interrupts() {
    let mut snapshot = busy("Paid", AttemptState::Executing);
    waiting(&mut snapshot, &["Note", "Note"]);
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 9;
    assert_eq!(complete_with(&snapshot, failure()), Err(NeedsMoreRows));
    let attempt = snapshot.newest.as_deref().unwrap().clone();
    assert!(complete(&machine(), &snapshot, &attempt, failure(), moment(6)).is_ok());
}

#[test]
fn an_instance_in_error_takes_an_event_that_interrupts() {
    let mut error = busy("Paid", AttemptState::Error);
    let instance = Arc::make_mut(&mut error.instance);
    (instance.status, instance.is_open, instance.error) = (Status::Error, false, Some("no route".into()));
    let changes = arrive(&error, request(3, "Stop")).unwrap().changes.unwrap();
    assert_eq!((changes.instance.status, changes.instance.error, changes.close), (Status::Running, None, None));
    assert_eq!(arrive(&error, request(3, "Cancel")).map(|accepted| accepted.outcome).ok(), Some(SendOutcome::Queued));
}

#[test]
fn a_process_that_may_begin_no_call_leaves_the_interrupt_to_a_worker() {
    let snapshot = busy("Paid", AttemptState::Scheduled);
    let changes = put(&impatient(), &snapshot, request(3, "Stop"), moment(5)).unwrap().unwrap().changes.unwrap();
    assert!(changes.only_adds(), "it has the right to nothing else");
    let wake = changes.timers.iter().find_map(|change| match change {
        TimerChange::Set(timer) => Some(timer.clone()),
        _ => None,
    });
    let mut woken = snapshot.clone();
    woken.apply(changes);
    let changes = fire(&impatient(), &woken, wake.unwrap(), moment(6)).unwrap();
    assert_eq!(changes.open.map(|open| open.attempt.verb.clone()).as_deref(), Some("stopped"));
    assert_eq!(changes.close.map(|close| close.becomes), Some(AttemptState::Cancelled));
}

#[test]
fn an_internal_transition_counts_and_leaves_state_and_timer() {
    let mut snapshot = busy("Touch", AttemptState::Executing);
    snapshot.has_timer = true;
    let attempt = snapshot.newest.as_deref().unwrap();
    assert_eq!((attempt.verb.as_str(), attempt.to.as_str(), attempt.is_stay(), attempt.is_catch()), ("touched", "created", true, false));
    let changes = complete_with(&snapshot, success()).unwrap();
    assert_eq!((changes.instance.state.as_deref(), changes.instance.version), (Some("created"), snapshot.instance.version + 1));
    assert_eq!(changes.timers, [TimerChange::Release]);
}

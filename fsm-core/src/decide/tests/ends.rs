//! Tests of the end of an attempt and of due timers.

use std::sync::Arc;

use super::*;

#[test]
fn success_moves_the_instance_and_starts_the_timer_of_its_state() {
    let changes = ended(&begun(), success(), 4);
    assert_eq!((changes.instance.state.as_deref(), changes.instance.version, changes.instance.is_open), (Some("created"), 1, false));
    assert_eq!(changes.close.unwrap().becomes, AttemptState::Success);
    assert!(
        matches!(&changes.timers[..], [TimerChange::Set(Timer { state: Some(state), due_at, .. })] if state == "created" && *due_at == at(1804))
    );
}

#[test]
fn leaving_a_state_clears_its_timer_and_an_end_completes() {
    let paid = after(&sent(rests_in_created(), request(2, "Paid"), 5).unwrap().changes.unwrap());
    let changes = ended(&InstanceSnapshot { has_timer: true, ..paid }, success(), 6);
    assert_eq!((&changes.timers[..], changes.instance.status), (&[TimerChange::Clear][..], Status::Running));
    let done = after(&sent(InstanceSnapshot::of(changes.instance), request(3, "Completed"), 7).unwrap().changes.unwrap());
    assert_eq!(ended(&done, success(), 8).instance.status, Status::Completed);
}

#[test]
fn the_next_event_goes_before_the_inbox() {
    let mut snapshot = begun();
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 1;
    snapshot.inbox = vec![Waiting { position: 0, call: call(2), event: "Cancel".into(), priority: Priority::Normal }].into();
    let next = Some(Event { name: "Paid".into(), payload: b"1".to_vec() });
    let verb_requests = VerbRequests { next, ..VerbRequests::default() };
    let changes = ended(&snapshot, Outcome::Success { record: None, verb_requests, timer: None, search: Vec::new() }, 4);
    let open = changes.open.unwrap();
    assert_eq!((open.attempt.to.as_str(), open.payload, changes.instance.inbox_len()), ("paid", Some(Payload::Bytes(b"1".to_vec())), 1));
}

#[test]
fn what_no_longer_fits_when_its_turn_comes_is_rejected_and_the_next_goes_on() {
    let mut snapshot = begun();
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 3;
    let waiting = |position: i64, event: &str| Waiting {
        position,
        call: call(10 + position.unsigned_abs() as u128),
        event: event.into(),
        priority: Priority::Normal,
    };
    snapshot.inbox = vec![waiting(0, "Completed"), waiting(1, "Paid"), waiting(2, "Completed")].into();
    let changes = ended(&snapshot, success(), 4);
    assert_eq!(changes.notes.iter().map(|note| (note.kind, note.call)).collect::<Vec<_>>(), [(NoteKind::Rejected, Some(call(10)))]);
    assert_eq!(
        (changes.open.unwrap().payload, changes.inbox_taken, changes.instance.inbox_len()),
        (Some(Payload::Inbox(1)), Some(0..2), 1)
    );
}

#[test]
fn an_instance_that_ends_rejects_all_that_waits() {
    let mut snapshot = after(&sent(rests_in_created(), request(2, "Cancel"), 5).unwrap().changes.unwrap());
    Arc::make_mut(&mut snapshot.instance).inbox_tail = 1;
    snapshot.inbox = vec![Waiting { position: 0, call: call(3), event: "Paid".into(), priority: Priority::Normal }].into();
    let changes = ended(&snapshot, success(), 6);
    assert_eq!((changes.instance.status, changes.instance.inbox_len(), changes.notes.len(), changes.open), (Status::Completed, 0, 1, None));
}

#[test]
fn a_failure_schedules_the_next_attempt_and_the_last_one_is_an_error_that_keeps_the_state() {
    let mut snapshot = begun();
    let mut waits = Vec::new();
    for n in 1..=4 {
        let changes = ended(&snapshot, failure(), 10 * n);
        assert_eq!(changes.close.as_ref().unwrap().error.as_deref(), Some("no route"));
        match &changes.open {
            Some(open) => {
                waits.push((open.attempt.number, (open.attempt.scheduled_at - at(10 * n)).as_secs(), open.attempt.retry_state.remaining));
                assert_eq!(open.payload, None);
            }
            None => assert_eq!(
                (changes.instance.status, changes.instance.error.as_deref(), &changes.instance.state, changes.instance.is_open),
                (Status::Error, Some("no route"), &None, false)
            ),
        }
        snapshot = after(&changes);
    }
    assert_eq!(waits, [(2, 5, Some(2)), (3, 10, Some(1)), (4, 20, Some(0))]);
}

#[test]
fn without_a_policy_an_attempt_is_never_run_twice() {
    let paid = after(&sent(rests_in_created(), request(2, "Paid"), 5).unwrap().changes.unwrap());
    for outcome in [failure(), Outcome::Lost] {
        let changes = ended(&paid, outcome, 6);
        assert_eq!((changes.instance.status, changes.instance.state.as_deref(), changes.open), (Status::Error, Some("created"), None));
    }
}

#[test]
fn a_lost_attempt_counts_and_a_released_one_does_not() {
    let lost = ended(&begun(), Outcome::Lost, 4).open.unwrap().attempt;
    assert_eq!((lost.number, lost.retry_state.remaining, lost.scheduled_at), (2, Some(2), at(9)));
    let released = ended(&begun(), Outcome::Released, 4).open.unwrap().attempt;
    assert_eq!((released.number, released.retry_state.remaining, released.scheduled_at), (2, Some(3), at(4)));
}

#[test]
fn a_timer_runs_out_only_while_the_instance_rests_in_its_state() {
    let event = Event { name: TIMEOUT.into(), payload: b"{}".to_vec() };
    let id = TimerId(Uuid::from_u128(1));
    let timer = || Timer {
        id,
        instance: InstanceId(Uuid::from_u128(1)),
        state: Some("created".into()),
        event: event.clone(),
        due_at: at(1801),
        priority: Priority::Normal,
    };
    let rests = fire(&machine(), &rests_in_created(), timer(), moment(1801)).unwrap();
    assert_eq!((rests.fired(), rests.open.unwrap().attempt.to.as_str()), (Some(id), "expired"));

    let busy = after(&sent(rests_in_created(), request(2, "Paid"), 5).unwrap().changes.unwrap());
    let held = fire(&machine(), &busy, timer(), moment(1801)).unwrap();
    assert_eq!((&held.timers[..], held.open), (&[TimerChange::Hold(id)][..], None));

    let elsewhere = InstanceSnapshot::of(Instance { state: Some("paid".into()), ..Arc::unwrap_or_clone(rests_in_created().instance) });
    let gone = fire(&machine(), &elsewhere, timer(), moment(1801)).unwrap();
    assert_eq!((gone.fired(), gone.open), (Some(id), None));
}

#[test]
fn a_delayed_event_that_no_longer_fits_is_recorded() {
    let event = Event { name: "Completed".into(), payload: b"{}".to_vec() };
    let timer = Timer {
        id: TimerId(Uuid::from_u128(5)),
        instance: InstanceId(Uuid::from_u128(1)),
        state: None,
        event,
        due_at: at(9),
        priority: Priority::Normal,
    };
    let changes = fire(&machine(), &rests_in_created(), timer, moment(9)).unwrap();
    assert_eq!((changes.fired(), changes.notes[0].kind, changes.open), (Some(TimerId(Uuid::from_u128(5))), NoteKind::Rejected, None));
}

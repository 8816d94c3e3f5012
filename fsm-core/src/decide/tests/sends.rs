//! Tests of the outcomes of a send.

use std::sync::Arc;

use super::*;

#[test]
fn the_first_event_begins_an_instance() {
    let accepted = sent(unborn(), request(1, "Created"), 3).unwrap();
    let changes = accepted.changes.unwrap();
    let open = changes.open.unwrap();
    assert_eq!((accepted.outcome, accepted.call, changes.is_new, changes.instance.is_open), (SendOutcome::Started, call(1), true, true));
    assert_eq!((open.attempt.number, open.attempt.state, open.attempt.scheduled_at), (1, AttemptState::Scheduled, at(3)));
    assert_eq!((open.attempt.from.clone(), open.attempt.to.as_str(), open.attempt.retry_state.remaining), (None, "created", Some(3)));
    assert_eq!(open.payload, Some(Payload::Bytes(b"{}".to_vec())));
}

#[test]
fn a_granted_call_executes_in_the_session_at_once() {
    let granted = DecisionContext { grant: Some(SESSION), ..moment(3) };
    let open = send(&machine(), &unborn(), request(1, "Created"), granted).unwrap().unwrap().changes.unwrap().open.unwrap();
    assert_eq!((open.attempt.state, open.attempt.worker, open.attempt.started_at), (AttemptState::Executing, Some(SESSION), Some(at(3))));
}

#[test]
fn an_event_that_fits_nowhere_is_refused_and_the_refusal_says_what_fits() {
    let cases = [
        (unborn(), "Paid", "`payment` `order-7` has not begun and takes `Created`, not `Paid`"),
        (rests_in_created(), "Completed", "`payment` `order-7` is in `created` and takes `Paid` or `Cancel`, not `Completed`"),
        (begun(), "Created", "`payment` `order-7` will be in `created` and takes `Paid` or `Cancel`, not `Created`"),
        (rests_in_created(), TIMEOUT, "`payment` `order-7` is in `created` and takes `Paid` or `Cancel`, not `Timeout`"),
    ];
    for (snapshot, event, text) in cases {
        assert_eq!(sent(snapshot, request(9, event), 5).unwrap_err().to_string(), text);
    }
}

#[test]
fn an_ended_instance_takes_no_events() {
    let mut instance = Arc::unwrap_or_clone(rests_in_created().instance);
    (instance.status, instance.state) = (Status::Completed, Some("completed".into()));
    let text = sent(InstanceSnapshot::of(instance), request(9, "Paid"), 5).unwrap_err().to_string();
    assert_eq!(text, "`payment` `order-7` is completed in `completed` and takes no events, not `Paid`");
}

#[test]
fn a_busy_instances_event_waits_if_it_fits_after_all_before_it() {
    let accepted = sent(begun(), request(2, "Paid"), 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.outcome, changes.open, changes.instance.inbox_len()), (SendOutcome::Queued, None, 1));
    assert_eq!(changes.waits.unwrap().position, 0);

    let waiting = Waiting { position: 0, call: call(2), event: "Paid".into(), priority: Priority::Normal };
    let snapshot = InstanceSnapshot { instance: changes.instance.into(), inbox: vec![waiting].into(), ..begun() };
    assert_eq!(sent(snapshot.clone(), request(3, "Completed"), 6).unwrap().outcome, SendOutcome::Queued);
    assert!(matches!(sent(snapshot, request(3, "Paid"), 6), Err(Refusal::Unfit(_))));
}

#[test]
fn a_sender_may_refuse_to_wait_and_a_full_inbox_is_busy() {
    let impatient = Send { reject_if_busy: true, ..request(2, "Paid") };
    let text = sent(begun(), impatient, 5).unwrap_err().to_string();
    assert_eq!(text, "`payment` `order-7` is busy: attempt 1 of `created` is scheduled");
    let full = Send { inbox_limit: 0, ..request(2, "Paid") };
    assert!(matches!(sent(begun(), full, 5), Err(Refusal::Busy { .. })));
}

#[test]
fn the_same_dedup_id_gives_the_first_answer_and_other_content_is_a_conflict() {
    let known = Request { dedup: "evt-77".into(), event: Some("Created".into()), digest: vec![1], call: call(1), at: at(0) };
    let snapshot = InstanceSnapshot { request: Some(known), ..begun() };
    let again = |digest| Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![digest]] }), ..request(2, "Created") };
    let other = Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![1]] }), ..request(2, "Cancel") };
    assert!(matches!(sent(snapshot.clone(), other, 9), Err(Refusal::Conflict { .. })));
    let answer = sent(snapshot.clone(), again(1), 9).unwrap();
    assert_eq!((answer.outcome, answer.call, answer.changes), (SendOutcome::Duplicate, call(1), None));
    assert!(matches!(sent(snapshot, again(2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn any_digest_of_the_content_is_known_again_and_the_first_is_kept() {
    let both = |new, old| Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![new], vec![old]] }), ..request(2, "Created") };
    let kept = sent(unborn(), both(9, 1), 3).unwrap().changes.unwrap().request.unwrap();
    assert_eq!(kept.digest, vec![9]);
    let of_an_older_key = Request { digest: vec![1], ..kept };
    let snapshot = InstanceSnapshot { request: Some(of_an_older_key), ..begun() };
    assert_eq!(sent(snapshot.clone(), both(9, 1), 9).unwrap().outcome, SendOutcome::Duplicate);
    assert!(matches!(sent(snapshot, both(9, 2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn a_delayed_event_is_a_timer_that_belongs_to_no_state() {
    let later = Send { deliver_at: Some(at(60)), ..request(2, "Paid") };
    let accepted = sent(rests_in_created(), later, 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.outcome, &changes.open), (SendOutcome::Scheduled, &None));
    assert!(matches!(&changes.timers[..], [TimerChange::Set(Timer { state: None, due_at, .. })] if *due_at == at(60)));
}

#[test]
fn a_process_that_may_begin_no_call_leaves_the_event_to_a_worker() {
    for (snapshot, event, to) in [(unborn(), "Created", "created"), (rests_in_created(), "Paid", "paid")] {
        let state = snapshot.instance.state.clone();
        let accepted = put(&machine(), &snapshot, request(2, event), moment(5)).unwrap().unwrap();
        let changes = accepted.changes.unwrap();
        assert_eq!((accepted.outcome, accepted.call, changes.open.clone()), (SendOutcome::Queued, call(2), None));
        assert_eq!((changes.instance.state.clone(), changes.instance.is_open, changes.instance.inbox_len()), (state, false, 1));
        assert!(snapshot.is_new || changes.only_adds());
        let [TimerChange::Set(wake)] = changes.timers.as_slice() else { panic!("{:?}", changes.timers) };
        assert!(wake.is_wake() && wake.due_at == at(5) && wake.event.name == event && wake.state == changes.instance.state);

        let waiting = vec![Waiting { position: 0, call: call(2), event: event.into(), priority: Priority::Normal }];
        let left = InstanceSnapshot { instance: changes.instance.into(), is_new: false, inbox: waiting.into(), ..snapshot };
        let next = put(&machine(), &left, request(3, if to == "created" { "Paid" } else { "Completed" }), moment(6)).unwrap().unwrap();
        assert_eq!(next.changes.unwrap().timers, [], "a worker is called already");
        let impatient = Send { reject_if_busy: true, ..request(3, "Paid") };
        assert!(put(&machine(), &left, impatient, moment(6)).unwrap().is_err());
        let woken = fire(&machine(), &left, wake.clone(), moment(7)).unwrap();
        let attempt = woken.open.unwrap().attempt;
        assert_eq!((attempt.call, attempt.verb.as_str(), attempt.scheduled_at), (call(2), to, at(7)));
    }
    let impatient = Send { reject_if_busy: true, ..request(2, "Paid") };
    assert!(put(&machine(), &rests_in_created(), impatient, moment(5)).unwrap().is_ok(), "it is not busy");
    assert!(put(&machine(), &rests_in_created(), request(2, "Completed"), moment(5)).unwrap().is_err());
}

/// `Timeout` cannot be sent. This event was written directly into the table.
#[test]
fn an_event_that_bears_the_name_of_a_timer_runs_no_timer_out() {
    let rests = rests_in_created();
    let instance = Instance { inbox_tail: 1, ..Arc::unwrap_or_clone(rests.instance.clone()) };
    let forged = vec![Waiting { position: 0, call: call(9), event: TIMEOUT.into(), priority: Priority::Normal }];
    let snapshot = InstanceSnapshot { instance: instance.into(), inbox: forged.into(), ..rests };
    let wake = put(&machine(), &rests_in_created(), request(2, "Paid"), moment(5)).unwrap().unwrap().changes.unwrap().timers.remove(0);
    let TimerChange::Set(wake) = wake else { panic!("{wake:?}") };
    let changes = fire(&machine(), &snapshot, wake, moment(7)).unwrap();
    assert_eq!((changes.open, changes.notes.len(), changes.notes[0].kind), (None, 1, NoteKind::Rejected));
}

#[test]
fn a_delayed_event_that_cannot_start_an_instance_is_refused_where_there_is_none() {
    let later = |event| Send { deliver_at: Some(at(60)), ..request(2, event) };
    let refusal = sent(unborn(), later("Paid"), 5).unwrap_err().to_string();
    assert_eq!(refusal, "`payment` `order-7` has not begun and takes `Created`, not `Paid`");
    assert_eq!(sent(unborn(), later("Created"), 5).unwrap().outcome, SendOutcome::Scheduled);
    // An instance that waits for its start also accepts delayed events that fit a later state.
    let waits = InstanceSnapshot { is_new: false, ..unborn() };
    assert_eq!(sent(waits, later("Paid"), 5).unwrap().outcome, SendOutcome::Scheduled);
}

#[test]
fn an_instance_that_has_not_begun_ends_with_the_last_delayed_event_if_that_does_not_fit() {
    let waits = |awaits_others| InstanceSnapshot { is_new: false, awaits_others, ..unborn() };
    let event = request(2, "Completed").event;
    let timer = Timer {
        id: TimerId(call(2).0),
        instance: waits(false).instance.id,
        state: None,
        event,
        due_at: at(60),
        priority: Priority::Normal,
    };
    let fired = |snapshot: &InstanceSnapshot| fire(&machine(), snapshot, timer.clone(), moment(60)).unwrap();
    for (snapshot, becomes) in [(waits(false), Status::Cancelled), (waits(true), Status::Running), (rests_in_created(), Status::Running)] {
        let changes = fired(&snapshot);
        assert_eq!(changes.instance.status, becomes);
        assert_eq!((changes.notes[0].kind, changes.notes[0].call), (NoteKind::Rejected, Some(call(2))));
        assert_eq!(changes.fired(), Some(timer.id));
    }
}

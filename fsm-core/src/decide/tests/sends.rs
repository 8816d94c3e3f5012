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
    assert_eq!((open.attempt.from.clone(), open.attempt.to.as_str(), open.attempt.budget.remaining), (None, "created", Some(3)));
    assert_eq!(open.payload, Some(Payload::Bytes(b"{}".to_vec())));
}

#[test]
fn a_granted_call_executes_in_the_session_at_once() {
    let granted = Moment { grant: Some(SESSION), ..moment(3) };
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
    for (standing, event, text) in cases {
        assert_eq!(sent(standing, request(9, event), 5).unwrap_err().to_string(), text);
    }
}

#[test]
fn an_ended_instance_takes_no_events() {
    let mut instance = Arc::unwrap_or_clone(rests_in_created().instance);
    (instance.status, instance.state) = (Status::Completed, Some("completed".into()));
    let text = sent(Standing::of(instance), request(9, "Paid"), 5).unwrap_err().to_string();
    assert_eq!(text, "`payment` `order-7` is completed in `completed` and takes no events, not `Paid`");
}

#[test]
fn a_busy_instances_event_waits_if_it_fits_after_all_before_it() {
    let accepted = sent(begun(), request(2, "Paid"), 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.outcome, changes.open, changes.instance.inbox_len()), (SendOutcome::Queued, None, 1));
    assert_eq!(changes.waits.unwrap().position, 0);

    let waiting = Waiting { position: 0, call: call(2), event: "Paid".into() };
    let standing = Standing { instance: changes.instance.into(), inbox: vec![waiting].into(), ..begun() };
    assert_eq!(sent(standing.clone(), request(3, "Completed"), 6).unwrap().outcome, SendOutcome::Queued);
    assert!(matches!(sent(standing, request(3, "Paid"), 6), Err(Refusal::Unfit(_))));
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
    let standing = Standing { request: Some(known), ..begun() };
    let again = |digest| Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![digest]] }), ..request(2, "Created") };
    let other = Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![1]] }), ..request(2, "Cancel") };
    assert!(matches!(sent(standing.clone(), other, 9), Err(Refusal::Conflict { .. })));
    let answer = sent(standing.clone(), again(1), 9).unwrap();
    assert_eq!((answer.outcome, answer.call, answer.changes), (SendOutcome::Duplicate, call(1), None));
    assert!(matches!(sent(standing, again(2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn any_digest_of_the_content_is_known_again_and_the_first_is_kept() {
    let both = |new, old| Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![new], vec![old]] }), ..request(2, "Created") };
    let kept = sent(unborn(), both(9, 1), 3).unwrap().changes.unwrap().request.unwrap();
    assert_eq!(kept.digest, vec![9]);
    let of_an_older_key = Request { digest: vec![1], ..kept };
    let standing = Standing { request: Some(of_an_older_key), ..begun() };
    assert_eq!(sent(standing.clone(), both(9, 1), 9).unwrap().outcome, SendOutcome::Duplicate);
    assert!(matches!(sent(standing, both(9, 2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn a_delayed_event_is_a_timer_that_belongs_to_no_state() {
    let later = Send { deliver_at: Some(at(60)), ..request(2, "Paid") };
    let accepted = sent(rests_in_created(), later, 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.outcome, &changes.open), (SendOutcome::Scheduled, &None));
    assert!(matches!(&changes.timers[..], [TimerChange::Set(Timer { state: None, due_at, .. })] if *due_at == at(60)));
}

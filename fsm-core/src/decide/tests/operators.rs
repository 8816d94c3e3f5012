//! Tests of the operations.

use std::sync::Arc;

use super::*;

#[test]
fn a_retry_by_hand_gives_the_exhausted_call_a_fresh_budget() {
    let changes = operate(in_error(), Act::Retry, Some("gateway is back"), 20_000).unwrap().unwrap();
    let attempt = changes.open.unwrap().attempt;
    assert_eq!((attempt.call, attempt.number, attempt.scheduled_at), (call(1), 5, at(20_000)));
    assert_eq!((attempt.retry_state.remaining, attempt.retry_state.max_attempts(attempt.number)), (Some(3), Some(8)));
    assert_eq!((changes.instance.status, changes.instance.error), (Status::Running, None));
    assert_eq!((changes.notes[0].kind, changes.notes[0].detail.as_deref()), (NoteKind::Retried, Some("gateway is back")));
}

#[test]
fn a_retry_by_hand_drops_the_scheduled_attempt_and_is_refused_for_all_else() {
    let scheduled = after(&ended(&begun(), failure(), 4));
    let changes = operate(scheduled.clone(), Act::Retry, None, 5).unwrap().unwrap();
    assert_eq!(changes.close.unwrap().becomes, AttemptState::Cancelled);
    assert_eq!(changes.open.unwrap().attempt.number, 3);

    let executing = InstanceSnapshot { newest: Some(claimed(&begun(), 1).into()), ..begun() };
    let success = begun().newest.map(|newest| Attempt { state: AttemptState::Success, ..Arc::unwrap_or_clone(newest) }.into());
    let succeeded = InstanceSnapshot { newest: success, ..rests_in_created() };
    let cases = [
        (scheduled, 9, "`payment` `order-7` cannot be retried: attempt 2 of `created` is due already"),
        (executing, 9, "`payment` `order-7` cannot be retried: attempt 1 of `created` is executing"),
        (succeeded, 9, "`payment` `order-7` cannot be retried: its newest call, `created`, succeeded"),
    ];
    for (snapshot, second, text) in cases {
        assert_eq!(operate(snapshot, Act::Retry, None, second).unwrap_err().to_string(), text);
    }
}

#[test]
fn cancel_ends_the_instance_and_is_idempotent() {
    let executing = InstanceSnapshot { newest: Some(claimed(&begun(), 1).into()), ..begun() };
    let changes = operate(executing, Act::Cancel, Some("fraud"), 2).unwrap().unwrap();
    let close = changes.close.unwrap();
    assert_eq!((close.expected, close.held_by, close.becomes), (AttemptState::Executing, Some(SESSION), AttemptState::Cancelled));
    assert_eq!((changes.instance.status, changes.instance.is_open), (Status::Cancelled, false));
    assert_eq!(operate(InstanceSnapshot::of(changes.instance), Act::Cancel, None, 3), Ok(None));
}

#[test]
fn a_paused_instance_starts_nothing_until_it_is_resumed() {
    let paused = operate(begun(), Act::Pause, None, 1).unwrap().unwrap();
    assert_eq!((paused.instance.paused, paused.hold), (true, Some((call(1), 1))));
    assert_eq!(operate(InstanceSnapshot::of(paused.instance.clone()), Act::Pause, None, 2), Ok(None));

    let rests = InstanceSnapshot::of(Instance { paused: true, ..Arc::unwrap_or_clone(rests_in_created().instance) });
    let granted = DecisionContext { grant: Some(SESSION), ..moment(3) };
    let open = send(&machine(), &rests, request(2, "Paid"), granted).unwrap().unwrap().changes.unwrap().open.unwrap();
    assert_eq!((open.attempt.held, open.attempt.state), (true, AttemptState::Scheduled));
}

#[test]
fn skip_gives_up_the_call_and_takes_what_waits() {
    let mut stuck = InstanceSnapshot { newest: begun().newest, ..rests_in_created() };
    Arc::make_mut(&mut stuck.instance).status = Status::Error;
    Arc::make_mut(&mut stuck.instance).inbox_tail = 1;
    stuck.inbox = vec![Waiting { position: 0, call: call(2), event: "Cancel".into(), priority: Priority::Normal }].into();
    let changes = operate(stuck, Act::Skip, None, 5).unwrap().unwrap();
    assert_eq!((changes.instance.status, changes.open.unwrap().attempt.to.as_str()), (Status::Running, "cancelled"));
    assert!(operate(rests_in_created(), Act::Skip, None, 5).is_err());
}

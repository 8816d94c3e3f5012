//! The decisions, each rule as a case: a payment machine, and what is written when something happens to it.

use std::time::Duration;

use uuid::Uuid;

use super::fire::fire;
use super::operate::{Act, Operation};
use super::refusal::Refusal;
use super::send::{Accepted, Dedup, Fate, Send, send};
use super::settle::settle;
use super::{Moment, Standing};
use crate::call::{Attempt, AttemptState};
use crate::changes::{Changes, NoteKind, Payload, Request, Timer, TimerChange, Waiting};
use crate::ids::{CallId, InstanceId, SessionId, TimerId};
use crate::instance::{Instance, Status};
use crate::machine::{Edge, Machine, TIMEOUT, Verb};
use crate::outcome::{Asks, Event, Outcome, Problem};
use crate::retry::{Retry, RetryAdvice};
use crate::time::Timestamp;

pub(super) const SESSION: SessionId = SessionId(Uuid::from_u128(7));

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

pub(super) fn moment(second: i64) -> Moment {
    Moment { now: at(second), grant: None, fresh: CallId(Uuid::from_u128(1000 + u128::from(second.unsigned_abs()))) }
}

pub(super) fn call(n: u128) -> CallId {
    CallId(Uuid::from_u128(n))
}

fn three_retries() -> Retry {
    Retry {
        max_attempts: Some(4),
        min: Duration::from_secs(5),
        max: Duration::from_secs(3600),
        backoff: 2.0,
        jitter: 0.0,
        within: None,
        give_up_on: Vec::new(),
        delay: None,
        catch: None,
    }
}

/// created (retried three times) -> paid -> completed; created after 30 min -> expired; created on Cancel -> cancelled.
pub(super) fn machine() -> Machine {
    let verb = |name: &str, event: &str, retry| Verb { name: name.into(), event: event.into(), timeout: None, retry };
    let edge =
        |from: Option<&str>, event: &str, to: &str, after| Edge { from: from.map(Into::into), event: event.into(), to: to.into(), after };
    Machine {
        name: "payment".into(),
        docs: String::new(),
        verbs: vec![
            verb("created", "Created", Some(three_retries())),
            verb("paid", "Paid", None),
            verb("completed", "Completed", None),
            verb("expired", TIMEOUT, None),
            verb("cancelled", "Cancel", None),
        ],
        edges: vec![
            edge(None, "Created", "created", None),
            edge(Some("created"), "Paid", "paid", None),
            edge(Some("created"), TIMEOUT, "expired", Some(Duration::from_secs(1800))),
            edge(Some("created"), "Cancel", "cancelled", None),
            edge(Some("paid"), "Completed", "completed", None),
        ],
        ends: vec!["completed".into(), "expired".into(), "cancelled".into()],
        record: None,
    }
}

pub(super) fn unborn() -> Standing {
    let instance = Instance::new(InstanceId(Uuid::from_u128(1)), "payment", "order-7", at(0));
    Standing { is_new: true, ..Standing::of(instance) }
}

pub(super) fn request(n: u128, event: &str) -> Send {
    let event = Event { name: event.into(), payload: b"{}".to_vec() };
    Send { id: call(n), event, dedup: None, deliver_at: None, or_refuse: false, inbox_limit: 1000 }
}

pub(super) fn sent(standing: Standing, send_it: Send, second: i64) -> Result<Accepted, Refusal> {
    send(&machine(), &standing, send_it, moment(second)).unwrap()
}

/// What is known of the instance once `changes` are written, and its live attempt claimed.
pub(super) fn after(changes: &Changes) -> Standing {
    let newest = changes.open.as_ref().map(|open| open.attempt.clone());
    Standing { newest, ..Standing::of(changes.instance.clone()) }
}

pub(super) fn claimed(standing: &Standing, second: i64) -> Attempt {
    let newest = standing.newest.clone().expect("a call is open");
    Attempt { state: AttemptState::Executing, worker: Some(SESSION), started_at: Some(at(second)), ..newest }
}

pub(super) fn begun() -> Standing {
    after(&sent(unborn(), request(1, "Created"), 0).unwrap().changes.unwrap())
}

pub(super) fn ended(standing: &Standing, outcome: Outcome, second: i64) -> Changes {
    settle(&machine(), standing, &claimed(standing, second), outcome, moment(second)).unwrap()
}

fn operate(standing: Standing, act: Act, reason: Option<&str>, second: i64) -> Result<Option<Changes>, Refusal> {
    let operation = Operation { act, reason: reason.map(Into::into), actor: None, request: None };
    super::operate::operate(&machine(), &standing, operation, moment(second)).unwrap()
}

pub(super) fn success() -> Outcome {
    Outcome::Success { record: None, asks: Asks::default() }
}

pub(super) fn failure() -> Outcome {
    Outcome::Failure(Problem { error: "no route".into(), advice: RetryAdvice::Default })
}

/// Rests in `created`, with nothing open.
pub(super) fn rests_in_created() -> Standing {
    Standing { newest: begun().newest, ..Standing::of(ended(&begun(), success(), 1).instance) }
}

pub(super) fn in_error() -> Standing {
    let mut standing = begun();
    let mut second = 0;
    while standing.instance.status != Status::Error {
        let changes = ended(&standing, failure(), second);
        let last = claimed(&standing, second);
        standing = after(&changes);
        if standing.newest.is_none() {
            standing.newest = Some(Attempt { state: AttemptState::Error, ..last });
        }
        second += 3600;
    }
    standing
}

#[test]
fn the_first_event_begins_an_instance() {
    let accepted = sent(unborn(), request(1, "Created"), 3).unwrap();
    let changes = accepted.changes.unwrap();
    let open = changes.open.unwrap();
    assert_eq!((accepted.fate, accepted.call, changes.is_new, changes.instance.is_open), (Fate::Started, call(1), true, true));
    assert_eq!((open.attempt.number, open.attempt.state, open.attempt.scheduled_at), (1, AttemptState::Scheduled, at(3)));
    assert_eq!((open.attempt.from, open.attempt.to.as_str(), open.attempt.budget.remaining), (None, "created", Some(3)));
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
    let mut instance = rests_in_created().instance;
    (instance.status, instance.state) = (Status::Completed, Some("completed".into()));
    let text = sent(Standing::of(instance), request(9, "Paid"), 5).unwrap_err().to_string();
    assert_eq!(text, "`payment` `order-7` is completed in `completed` and takes no events, not `Paid`");
}

#[test]
fn a_busy_instances_event_waits_if_it_fits_after_all_before_it() {
    let accepted = sent(begun(), request(2, "Paid"), 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.fate, changes.open, changes.instance.inbox_len()), (Fate::Queued, None, 1));
    assert_eq!(changes.waits.unwrap().position, 0);

    let waiting = Waiting { position: 0, call: call(2), event: "Paid".into() };
    let standing = Standing { instance: changes.instance, inbox: vec![waiting].into(), ..begun() };
    assert_eq!(sent(standing.clone(), request(3, "Completed"), 6).unwrap().fate, Fate::Queued);
    assert!(matches!(sent(standing, request(3, "Paid"), 6), Err(Refusal::Unfit(_))));
}

#[test]
fn a_sender_may_refuse_to_wait_and_a_full_inbox_is_busy() {
    let impatient = Send { or_refuse: true, ..request(2, "Paid") };
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
    assert_eq!((answer.fate, answer.call, answer.changes), (Fate::Duplicate, call(1), None));
    assert!(matches!(sent(standing, again(2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn any_digest_of_the_content_is_known_again_and_the_first_is_kept() {
    let both = |new, old| Send { dedup: Some(Dedup { id: "evt-77".into(), digests: vec![vec![new], vec![old]] }), ..request(2, "Created") };
    let kept = sent(unborn(), both(9, 1), 3).unwrap().changes.unwrap().request.unwrap();
    assert_eq!(kept.digest, vec![9]);
    let of_an_older_key = Request { digest: vec![1], ..kept };
    let standing = Standing { request: Some(of_an_older_key), ..begun() };
    assert_eq!(sent(standing.clone(), both(9, 1), 9).unwrap().fate, Fate::Duplicate);
    assert!(matches!(sent(standing, both(9, 2), 9), Err(Refusal::Conflict { .. })));
}

#[test]
fn a_delayed_event_is_a_timer_that_belongs_to_no_state() {
    let later = Send { deliver_at: Some(at(60)), ..request(2, "Paid") };
    let accepted = sent(rests_in_created(), later, 5).unwrap();
    let changes = accepted.changes.unwrap();
    assert_eq!((accepted.fate, &changes.open), (Fate::Scheduled, &None));
    assert!(matches!(&changes.timers[..], [TimerChange::Set(Timer { state: None, due_at, .. })] if *due_at == at(60)));
}

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
    let changes = ended(&Standing { has_timer: true, ..paid }, success(), 6);
    assert_eq!((&changes.timers[..], changes.instance.status), (&[TimerChange::Clear][..], Status::Running));
    let done = after(&sent(Standing::of(changes.instance), request(3, "Completed"), 7).unwrap().changes.unwrap());
    assert_eq!(ended(&done, success(), 8).instance.status, Status::Completed);
}

#[test]
fn the_next_event_goes_before_the_inbox() {
    let mut standing = begun();
    standing.instance.inbox_tail = 1;
    standing.inbox = vec![Waiting { position: 0, call: call(2), event: "Cancel".into() }].into();
    let next = Some(Event { name: "Paid".into(), payload: b"1".to_vec() });
    let changes = ended(&standing, Outcome::Success { record: None, asks: Asks { next, sends: Vec::new() } }, 4);
    let open = changes.open.unwrap();
    assert_eq!((open.attempt.to.as_str(), open.payload, changes.instance.inbox_len()), ("paid", Some(Payload::Bytes(b"1".to_vec())), 1));
}

#[test]
fn what_no_longer_fits_when_its_turn_comes_is_rejected_and_the_next_goes_on() {
    let mut standing = begun();
    standing.instance.inbox_tail = 3;
    let waiting = |position: i64, event: &str| Waiting { position, call: call(10 + position.unsigned_abs() as u128), event: event.into() };
    standing.inbox = vec![waiting(0, "Completed"), waiting(1, "Paid"), waiting(2, "Completed")].into();
    let changes = ended(&standing, success(), 4);
    assert_eq!(changes.notes.iter().map(|note| (note.kind, note.call)).collect::<Vec<_>>(), [(NoteKind::Rejected, Some(call(10)))]);
    assert_eq!(
        (changes.open.unwrap().payload, changes.inbox_taken, changes.instance.inbox_len()),
        (Some(Payload::Inbox(1)), Some(0..2), 1)
    );
}

#[test]
fn an_instance_that_ends_rejects_all_that_waits() {
    let mut standing = after(&sent(rests_in_created(), request(2, "Cancel"), 5).unwrap().changes.unwrap());
    standing.instance.inbox_tail = 1;
    standing.inbox = vec![Waiting { position: 0, call: call(3), event: "Paid".into() }].into();
    let changes = ended(&standing, success(), 6);
    assert_eq!((changes.instance.status, changes.instance.inbox_len(), changes.notes.len(), changes.open), (Status::Completed, 0, 1, None));
}

#[test]
fn a_failure_schedules_the_next_attempt_and_the_last_one_is_an_error_that_keeps_the_state() {
    let mut standing = begun();
    let mut waits = Vec::new();
    for n in 1..=4 {
        let changes = ended(&standing, failure(), 10 * n);
        assert_eq!(changes.close.as_ref().unwrap().error.as_deref(), Some("no route"));
        match &changes.open {
            Some(open) => {
                waits.push((open.attempt.number, (open.attempt.scheduled_at - at(10 * n)).as_secs(), open.attempt.budget.remaining));
                assert_eq!(open.payload, None);
            }
            None => assert_eq!(
                (changes.instance.status, changes.instance.error.as_deref(), &changes.instance.state, changes.instance.is_open),
                (Status::Error, Some("no route"), &None, false)
            ),
        }
        standing = after(&changes);
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
    assert_eq!((lost.number, lost.budget.remaining, lost.scheduled_at), (2, Some(2), at(9)));
    let released = ended(&begun(), Outcome::Released, 4).open.unwrap().attempt;
    assert_eq!((released.number, released.budget.remaining, released.scheduled_at), (2, Some(3), at(4)));
}

#[test]
fn a_retry_by_hand_gives_the_exhausted_call_a_fresh_budget() {
    let changes = operate(in_error(), Act::Retry, Some("gateway is back"), 20_000).unwrap().unwrap();
    let attempt = changes.open.unwrap().attempt;
    assert_eq!((attempt.call, attempt.number, attempt.scheduled_at), (call(1), 5, at(20_000)));
    assert_eq!((attempt.budget.remaining, attempt.budget.max_attempts(attempt.number)), (Some(3), Some(8)));
    assert_eq!((changes.instance.status, changes.instance.error), (Status::Running, None));
    assert_eq!((changes.notes[0].kind, changes.notes[0].detail.as_deref()), (NoteKind::Retried, Some("gateway is back")));
}

#[test]
fn a_retry_by_hand_drops_the_scheduled_attempt_and_is_refused_for_all_else() {
    let scheduled = after(&ended(&begun(), failure(), 4));
    let changes = operate(scheduled.clone(), Act::Retry, None, 5).unwrap().unwrap();
    assert_eq!(changes.close.unwrap().becomes, AttemptState::Cancelled);
    assert_eq!(changes.open.unwrap().attempt.number, 3);

    let executing = Standing { newest: Some(claimed(&begun(), 1)), ..begun() };
    let success = begun().newest.map(|newest| Attempt { state: AttemptState::Success, ..newest });
    let succeeded = Standing { newest: success, ..rests_in_created() };
    let cases = [
        (scheduled, 9, "`payment` `order-7` cannot be retried: attempt 2 of `created` is due already"),
        (executing, 9, "`payment` `order-7` cannot be retried: attempt 1 of `created` is executing"),
        (succeeded, 9, "`payment` `order-7` cannot be retried: its newest call, `created`, succeeded"),
    ];
    for (standing, second, text) in cases {
        assert_eq!(operate(standing, Act::Retry, None, second).unwrap_err().to_string(), text);
    }
}

#[test]
fn cancel_ends_the_instance_and_is_idempotent() {
    let executing = Standing { newest: Some(claimed(&begun(), 1)), ..begun() };
    let changes = operate(executing, Act::Cancel, Some("fraud"), 2).unwrap().unwrap();
    let close = changes.close.unwrap();
    assert_eq!((close.expected, close.held_by, close.becomes), (AttemptState::Executing, Some(SESSION), AttemptState::Cancelled));
    assert_eq!((changes.instance.status, changes.instance.is_open), (Status::Cancelled, false));
    assert_eq!(operate(Standing::of(changes.instance), Act::Cancel, None, 3), Ok(None));
}

#[test]
fn a_paused_instance_starts_nothing_until_it_is_resumed() {
    let paused = operate(begun(), Act::Pause, None, 1).unwrap().unwrap();
    assert_eq!((paused.instance.paused, paused.hold), (true, Some((call(1), 1))));
    assert_eq!(operate(Standing::of(paused.instance.clone()), Act::Pause, None, 2), Ok(None));

    let rests = Standing::of(Instance { paused: true, ..rests_in_created().instance });
    let granted = Moment { grant: Some(SESSION), ..moment(3) };
    let open = send(&machine(), &rests, request(2, "Paid"), granted).unwrap().unwrap().changes.unwrap().open.unwrap();
    assert_eq!((open.attempt.held, open.attempt.state), (true, AttemptState::Scheduled));
}

#[test]
fn skip_gives_up_the_call_and_takes_what_waits() {
    let mut stuck = Standing { newest: begun().newest, ..rests_in_created() };
    stuck.instance.status = Status::Error;
    stuck.instance.inbox_tail = 1;
    stuck.inbox = vec![Waiting { position: 0, call: call(2), event: "Cancel".into() }].into();
    let changes = operate(stuck, Act::Skip, None, 5).unwrap().unwrap();
    assert_eq!((changes.instance.status, changes.open.unwrap().attempt.to.as_str()), (Status::Running, "cancelled"));
    assert!(operate(rests_in_created(), Act::Skip, None, 5).is_err());
}

#[test]
fn a_timer_runs_out_only_while_the_instance_rests_in_its_state() {
    let event = Event { name: TIMEOUT.into(), payload: b"{}".to_vec() };
    let id = TimerId(Uuid::from_u128(1));
    let timer =
        || Timer { id, instance: InstanceId(Uuid::from_u128(1)), state: Some("created".into()), event: event.clone(), due_at: at(1801) };
    let rests = fire(&machine(), &rests_in_created(), timer(), 1000, moment(1801)).unwrap();
    assert_eq!((rests.fired(), rests.open.unwrap().attempt.to.as_str()), (Some(id), "expired"));

    let busy = after(&sent(rests_in_created(), request(2, "Paid"), 5).unwrap().changes.unwrap());
    let held = fire(&machine(), &busy, timer(), 1000, moment(1801)).unwrap();
    assert_eq!((&held.timers[..], held.open), (&[TimerChange::Hold(id)][..], None));

    let elsewhere = Standing::of(Instance { state: Some("paid".into()), ..rests_in_created().instance });
    let gone = fire(&machine(), &elsewhere, timer(), 1000, moment(1801)).unwrap();
    assert_eq!((gone.fired(), gone.open), (Some(id), None));
}

#[test]
fn a_delayed_event_that_no_longer_fits_is_recorded() {
    let event = Event { name: "Completed".into(), payload: b"{}".to_vec() };
    let timer = Timer { id: TimerId(Uuid::from_u128(5)), instance: InstanceId(Uuid::from_u128(1)), state: None, event, due_at: at(9) };
    let changes = fire(&machine(), &rests_in_created(), timer, 1000, moment(9)).unwrap();
    assert_eq!((changes.fired(), changes.notes[0].kind, changes.open), (Some(TimerId(Uuid::from_u128(5))), NoteKind::Rejected, None));
}

//! Which requests go next, in which order, and how many steps that takes.

use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::decide::send::Send;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::outcome::{Asks, Event, Outcome, Outgoing};
use fsm_core::retry::Budget;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::super::request::{Report, What};
use super::*;

fn keys(batch: &[Request]) -> Vec<&str> {
    batch.iter().map(|request| &*request.whose.key).collect()
}

fn numbers(batch: &[Request]) -> Vec<Number> {
    batch.iter().map(|request| request.number).collect()
}

fn locked() -> Arc<StoreError> {
    Arc::new(StoreError::Locked { machine: "payment".into(), key: "locked".into() })
}

fn call(request: &Request) -> CallId {
    let What::Settle(report) = &request.what else { unreachable!("it is a report") };
    report.attempt.call
}

fn send(key: &str) -> Request {
    let (id, event) = (CallId(Uuid::now_v7()), Event { name: "Paid".into(), payload: Vec::new() });
    let send = Send { id, event, dedup: None, deliver_at: None, reject_if_busy: false, inbox_limit: 1 };
    Request::new(Whose::new("payment", key), What::Send(send), None)
}

/// The end of an attempt that sends to these.
fn reporting(key: &str, receivers: &[&str]) -> Request {
    let mut request = end(key, 0);
    let What::Settle(report) = &mut request.what else { unreachable!("it is a report") };
    let sends = receivers.iter().map(|key| Outgoing {
        id: CallId(Uuid::now_v7()),
        machine: "payment".into(),
        key: (*key).to_owned(),
        event: Event { name: "Paid".into(), payload: Vec::new() },
        deliver_at: None,
    });
    report.outcome = Outcome::Success { record: None, asks: Asks { sends: sends.collect(), ..Asks::default() } };
    request
}

/// The end of an attempt that began so many microseconds after it was written.
fn end(key: &str, waited_us: i64) -> Request {
    let attempt = Attempt {
        call: CallId(Uuid::now_v7()),
        number: 1,
        instance: InstanceId(Uuid::now_v7()),
        machine: "payment".into(),
        verb: "paid".into(),
        event: "Paid".into(),
        from: None,
        to: "paid".into(),
        state: AttemptState::Executing,
        held: false,
        created_at: Timestamp::from_micros(1000),
        scheduled_at: Timestamp::from_micros(1000),
        budget: Budget::fresh(None, Timestamp::from_micros(1000)),
        worker: Some(SessionId(Uuid::now_v7())),
        started_at: Some(Timestamp::from_micros(1000 + waited_us)),
        finished_at: None,
        error: None,
        previous: None,
    };
    let report = Report::new(Arc::new(attempt), Outcome::Released);
    Request::new(Whose::new("payment", key), What::Settle(Box::new(report)), None)
}

fn waiting(fresh: usize, due: usize) -> Waiting {
    let mut waiting = Waiting::default();
    (0..due).for_each(|n| waiting.put(end(&format!("due-{n}"), 1)));
    (0..fresh).for_each(|n| waiting.put(end(&format!("fresh-{n}"), 0)));
    waiting
}

/// How much that is fresh and how much that was due goes next.
fn next(waiting: &mut Waiting, most: usize, now: Instant) -> (usize, usize) {
    let batch = waiting.pick(most, now);
    let due = batch.iter().filter(|request| request.was_due()).count();
    (batch.len() - due, due)
}

#[test]
fn what_was_due_goes_in_the_numbers_of_what_is_fresh() {
    let (mut waiting, now) = (waiting(40, 200), Instant::now());
    assert_eq!(next(&mut waiting, 100, now), (40, 40));
    waiting.put(end("another", 0));
    assert_eq!(next(&mut waiting, 100, now), (1, LEAST));
    assert_eq!(next(&mut waiting, 100, now), (0, LEAST), "more that is fresh is expected");
    assert_eq!(next(&mut waiting, 100, now + RECENT), (0, 100));
}

#[test]
fn what_was_due_never_stands_still() {
    let (mut waiting, now) = (waiting(300, 20), Instant::now());
    assert_eq!(next(&mut waiting, 100, now), (84, 16));
    assert_eq!(next(&mut waiting, 100, now), (96, 4));
}

#[test]
fn no_more_is_claimed_than_goes_soon() {
    let now = Instant::now();
    assert_eq!(waiting(0, 0).wanted(now), AT_A_TIME);
    assert_eq!(waiting(0, LONG + 1).wanted(now), 0);
    let mut busy = waiting(20, 45);
    assert_eq!(next(&mut busy, 100, now), (20, 20));
    assert_eq!(busy.wanted(now), 0, "25 wait, and 20 go with the next commit");
    assert_eq!(next(&mut busy, 100, now), (0, 20));
    assert_eq!(busy.wanted(now), 40);
}

#[test]
fn an_instance_keeps_its_order() {
    let mut waiting = Waiting::default();
    ["one", "one", "two"].into_iter().for_each(|key| waiting.put(end(key, 0)));
    let first = waiting.pick(100, Instant::now());
    assert_eq!(keys(&first), ["one", "two"]);
    assert_eq!(waiting.pick(100, Instant::now()).len(), 0, "one is under way");
    waiting.leave(&[first[0].number]);
    assert_eq!(keys(&waiting.pick(100, Instant::now())), ["one"]);
    assert!(waiting.is_empty() && !waiting.is_idle());
}

/// Each request is looked at a few times in all, however many wait for the same instance.
#[test]
fn a_selection_costs_the_same_however_many_wait_for_one_instance() {
    const MANY: usize = 10_000;
    let mut waiting = Waiting::default();
    (0..MANY).for_each(|_| waiting.put(end("hot", 0)));
    (0..MANY).for_each(|n| waiting.put(end(&format!("cold-{n}"), 0)));
    let (mut hot, mut cold, began) = (0, 0, Instant::now());
    while !waiting.is_idle() {
        let batch = waiting.pick(100, Instant::now());
        assert!(!batch.is_empty());
        let of_hot = batch.iter().filter(|request| &*request.whose.key == "hot").count();
        assert!(of_hot <= 1, "an instance is once in a batch");
        (hot, cold) = (hot + of_hot, cold + batch.len() - of_hot);
        waiting.leave(&numbers(&batch));
    }
    assert_eq!((hot, cold), (MANY, MANY));
    println!("{} requests took {} steps and {:?}", 2 * MANY, waiting.steps(), began.elapsed());
    assert!(waiting.steps() <= 10 * MANY, "{} steps for {} requests", waiting.steps(), 2 * MANY);
}

/// The lock is somebody else's, so the requests of the instance wait in their order, and are not tried one after the other.
#[test]
fn what_is_locked_rests_and_keeps_its_order_and_no_other_waits() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    (0..3).for_each(|_| waiting.put(end("locked", 0)));
    let request = waiting.pick(100, now).remove(0);
    let (first, whose) = (request.number, request.whose.clone());
    let of_first = call(&request);
    assert!(waiting.put_back(request, &[whose], &locked(), now).is_none(), "it waits until the lock is free");
    waiting.put(end("free", 0));
    waiting.put(end("locked", 0));
    assert_eq!(keys(&waiting.pick(100, now)), ["free"]);
    let next = waiting.next_wake().expect("the line goes on");
    assert!(next > now && next <= now + Duration::from_millis(50));
    waiting.wake(next);
    let again = waiting.pick(100, next);
    waiting.leave(&[first]);
    assert_eq!(again.iter().map(call).collect::<Vec<_>>(), [of_first], "in its order");
    assert!(waiting.pick(100, next).is_empty(), "it is under way, whatever its former lane says");
    waiting.leave(&numbers(&again));
    assert_eq!(keys(&waiting.pick(100, next)), ["locked"]);
}

#[test]
fn a_line_rests_longer_and_longer_up_to_a_second() {
    let (mut waiting, mut now) = (Waiting::default(), Instant::now());
    waiting.put(end("locked", 0));
    let mut rests = Vec::new();
    for _ in 0..7 {
        let request = waiting.pick(100, now).remove(0);
        let whose = request.whose.clone();
        assert!(waiting.put_back(request, &[whose], &locked(), now).is_none());
        let next = waiting.next_wake().expect("the line goes on");
        rests.push((next - now).as_millis());
        now = next;
        waiting.wake(now);
    }
    assert_eq!(rests, [50, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn what_waits_behind_a_lock_is_given_up_with_the_error_and_then_dropped() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    waiting.put(end("locked", 0));
    let callers = [send("locked"), send("locked")].map(|request| {
        let ticket = request.ticket().expect("somebody waits for it");
        waiting.put(request);
        ticket
    });
    let put_back = |waiting: &mut Waiting, at: Instant| {
        let request = waiting.pick(100, at).remove(0);
        let whose = request.whose.clone();
        assert!(waiting.put_back(request, &[whose], &locked(), at).is_none());
        waiting.next_wake().expect("the line goes on")
    };
    let next = put_back(&mut waiting, now);
    assert!(callers[0].give_up(Duration::from_secs(10)).to_string().contains("`payment` `locked` is locked"), "it is told why");
    waiting.wake(next);
    let next = put_back(&mut waiting, next);
    waiting.wake(next);
    for _ in 0..2 {
        let batch = waiting.pick(100, next);
        assert_eq!(keys(&batch), ["locked"]);
        waiting.leave(&numbers(&batch));
    }
    assert!(waiting.is_idle(), "the one that was given up is not there any more");
}

/// The scan finds a timer again, and has others to fire.
#[test]
fn a_loop_is_told_of_a_lock_at_once() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    waiting.put(end("locked", 0).of_loop());
    let request = waiting.pick(100, now).remove(0);
    let whose = request.whose.clone();
    assert!(waiting.put_back(request, &[whose], &locked(), now).is_some());
    assert!(waiting.is_idle());
}

/// A verb sent to an instance that is locked and to one that is not.
#[test]
fn a_report_that_waits_for_a_locked_receiver_keeps_no_other_instance_waiting() {
    let (mut waiting, now) = (Waiting::default(), Instant::now());
    waiting.put(reporting("sender", &["locked", "free"]));
    let report = waiting.pick(100, now).remove(0);
    assert!(waiting.put_back(report, &[Whose::new("payment", "locked")], &locked(), now).is_none());
    ["free", "sender", "locked"].into_iter().for_each(|key| waiting.put(send(key)));
    waiting.put(reporting("another", &["locked", "free"]));
    let batch = waiting.pick(100, now);
    assert_eq!(keys(&batch), ["free", "sender", "locked"]);
    let mut left = Vec::new();
    waiting.leave(&numbers(&batch));
    for n in 1..10 {
        let now = now + n * Duration::from_secs(1);
        waiting.wake(now);
        let batch = waiting.pick(100, now);
        waiting.leave(&numbers(&batch));
        left.extend(keys(&batch).into_iter().map(str::to_owned));
    }
    left.sort();
    assert_eq!(left, ["another", "sender"]);
    assert!(waiting.is_idle());
}

//! Tests of the order in which requests are committed, and of the number of steps that this takes.

use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::commit::request::RequestKind;
use fsm_core::decide::send::Send;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::outcome::{Event, Outcome, Outgoing, VerbRequests};
use fsm_core::priority::Priority;
use fsm_core::retry::RetryState;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::*;
use crate::committer::request::report;

fn keys(batch: &[Request]) -> Vec<&str> {
    batch.iter().map(|request| &*request.target.key).collect()
}

pub(super) fn numbers(batch: &[Request]) -> Vec<Number> {
    batch.iter().map(|request| request.number).collect()
}

pub(super) fn locked() -> Arc<StoreError> {
    Arc::new(StoreError::Locked { machine: "payment".into(), key: "locked".into() })
}

fn call(request: &Request) -> CallId {
    let RequestKind::Complete(report) = &request.kind else { unreachable!("it is a report") };
    report.attempt.call
}

pub(super) fn send(key: &str) -> Request {
    let (id, event) = (CallId(Uuid::now_v7()), Event { name: "Paid".into(), payload: Vec::new() });
    let send = Send::new(id, event, 1);
    Request::new(InstanceKey::new("payment", key), RequestKind::Send(send), None)
}

/// The report of an attempt that sends an event to each of these receivers.
pub(super) fn reporting(key: &str, receivers: &[&str]) -> Request {
    let mut request = end(key, 0);
    let RequestKind::Complete(report) = &mut request.kind else { unreachable!("it is a report") };
    let sends = receivers.iter().map(|key| Outgoing {
        id: CallId(Uuid::now_v7()),
        machine: "payment".into(),
        key: (*key).to_owned(),
        event: Event { name: "Paid".into(), payload: Vec::new() },
        deliver_at: None,
        is_required: false,
        search: Vec::new(),
        priority: Priority::Normal,
    });
    report.outcome = Outcome::Success {
        record: None,
        verb_requests: VerbRequests { sends: sends.collect(), ..VerbRequests::default() },
        timer: None,
        search: Vec::new(),
    };
    request
}

/// The report of an attempt that began this many microseconds after it was created.
pub(super) fn end(key: &str, waited_us: i64) -> Request {
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
        retry_state: RetryState::fresh(None, Timestamp::from_micros(1000)),
        worker: Some(SessionId(Uuid::now_v7())),
        started_at: Some(Timestamp::from_micros(1000 + waited_us)),
        finished_at: None,
        error: None,
        previous: None,
        priority: Priority::Normal,
        limit: None,
    };
    let report = report(Arc::new(attempt), Outcome::Released);
    Request::new(InstanceKey::new("payment", key), RequestKind::Complete(Box::new(report)), None)
}

fn priority_queue(fresh: usize, due: usize) -> PriorityQueue {
    let mut priority_queue = PriorityQueue::default();
    (0..due).for_each(|n| priority_queue.put(end(&format!("due-{n}"), 1)));
    (0..fresh).for_each(|n| priority_queue.put(end(&format!("fresh-{n}"), 0)));
    priority_queue
}

/// The numbers of new requests and of backlog in the next batch.
fn next(priority_queue: &mut PriorityQueue, most: usize, now: Instant) -> (usize, usize) {
    let batch = priority_queue.pick(most, now);
    let due = batch.iter().filter(|request| request.was_due()).count();
    (batch.len() - due, due)
}

#[test]
fn what_was_due_goes_in_the_numbers_of_what_is_fresh() {
    let (mut priority_queue, now) = (priority_queue(40, 200), Instant::now());
    assert_eq!(next(&mut priority_queue, 100, now), (40, 40));
    priority_queue.put(end("another", 0));
    assert_eq!(next(&mut priority_queue, 100, now), (1, LEAST));
    assert_eq!(next(&mut priority_queue, 100, now), (0, LEAST), "more that is fresh is expected");
    assert_eq!(next(&mut priority_queue, 100, now + RECENT), (0, 100));
}

#[test]
fn what_was_due_never_stands_still() {
    let (mut priority_queue, now) = (priority_queue(300, 20), Instant::now());
    assert_eq!(next(&mut priority_queue, 100, now), (84, 16));
    assert_eq!(next(&mut priority_queue, 100, now), (96, 4));
}

#[test]
fn no_more_is_claimed_than_goes_soon() {
    let now = Instant::now();
    assert_eq!(priority_queue(0, 0).wanted(now), AT_A_TIME);
    assert_eq!(priority_queue(0, LONG + 1).wanted(now), 0);
    let mut busy = priority_queue(20, 45);
    assert_eq!(next(&mut busy, 100, now), (20, 20));
    assert_eq!(busy.wanted(now), 0, "25 wait, and 20 go with the next commit");
    assert_eq!(next(&mut busy, 100, now), (0, 20));
    assert_eq!(busy.wanted(now), 40);
}

#[test]
fn an_instance_keeps_its_order() {
    let mut priority_queue = PriorityQueue::default();
    ["one", "one", "two"].into_iter().for_each(|key| priority_queue.put(end(key, 0)));
    let first = priority_queue.pick(100, Instant::now());
    assert_eq!(keys(&first), ["one", "two"]);
    assert_eq!(priority_queue.pick(100, Instant::now()).len(), 0, "one is under way");
    priority_queue.leave(&[first[0].number]);
    assert_eq!(keys(&priority_queue.pick(100, Instant::now())), ["one"]);
    assert!(priority_queue.is_empty() && !priority_queue.is_idle());
}

/// Each request is accessed only a few times, however many wait for the same instance.
#[test]
fn a_selection_costs_the_same_however_many_wait_for_one_instance() {
    const MANY: usize = 10_000;
    let mut priority_queue = PriorityQueue::default();
    (0..MANY).for_each(|_| priority_queue.put(end("hot", 0)));
    (0..MANY).for_each(|n| priority_queue.put(end(&format!("cold-{n}"), 0)));
    let (mut hot, mut cold, began) = (0, 0, Instant::now());
    while !priority_queue.is_idle() {
        let batch = priority_queue.pick(100, Instant::now());
        assert!(!batch.is_empty());
        let of_hot = batch.iter().filter(|request| &*request.target.key == "hot").count();
        assert!(of_hot <= 1, "an instance is once in a batch");
        (hot, cold) = (hot + of_hot, cold + batch.len() - of_hot);
        priority_queue.leave(&numbers(&batch));
    }
    assert_eq!((hot, cold), (MANY, MANY));
    println!("{} requests took {} steps and {:?}", 2 * MANY, priority_queue.steps(), began.elapsed());
    assert!(priority_queue.steps() <= 10 * MANY, "{} steps for {} requests", priority_queue.steps(), 2 * MANY);
}

/// Another transaction holds the lock: the requests of the instance wait in their order, and are not tried one after the other.
#[test]
fn what_is_locked_rests_and_keeps_its_order_and_no_other_waits() {
    let (mut priority_queue, now) = (PriorityQueue::default(), Instant::now());
    (0..3).for_each(|_| priority_queue.put(end("locked", 0)));
    let request = priority_queue.pick(100, now).remove(0);
    let (first, target) = (request.number, request.target.clone());
    let of_first = call(&request);
    assert!(priority_queue.put_back(request, &[target], &locked(), now).is_none(), "it waits until the lock is free");
    priority_queue.put(end("free", 0));
    priority_queue.put(end("locked", 0));
    assert_eq!(keys(&priority_queue.pick(100, now)), ["free"]);
    let next = priority_queue.next_wake().expect("the queue goes on");
    assert!(next > now && next <= now + Duration::from_millis(50));
    priority_queue.wake(next);
    let again = priority_queue.pick(100, next);
    priority_queue.leave(&[first]);
    assert_eq!(again.iter().map(call).collect::<Vec<_>>(), [of_first], "in its order");
    assert!(priority_queue.pick(100, next).is_empty(), "it is under way, whatever its former lane says");
    priority_queue.leave(&numbers(&again));
    assert_eq!(keys(&priority_queue.pick(100, next)), ["locked"]);
}

#[test]
fn a_line_rests_longer_and_longer_up_to_a_second() {
    let (mut priority_queue, mut now) = (PriorityQueue::default(), Instant::now());
    priority_queue.put(end("locked", 0));
    let mut backoffs = Vec::new();
    for _ in 0..7 {
        let request = priority_queue.pick(100, now).remove(0);
        let target = request.target.clone();
        assert!(priority_queue.put_back(request, &[target], &locked(), now).is_none());
        let next = priority_queue.next_wake().expect("the queue goes on");
        backoffs.push((next - now).as_millis());
        now = next;
        priority_queue.wake(now);
    }
    assert_eq!(backoffs, [50, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn what_waits_behind_a_lock_is_given_up_with_the_error_and_then_dropped() {
    let (mut priority_queue, now) = (PriorityQueue::default(), Instant::now());
    priority_queue.put(end("locked", 0));
    let callers = [send("locked"), send("locked")].map(|request| {
        let ticket = request.ticket().expect("somebody waits for it");
        priority_queue.put(request);
        ticket
    });
    let put_back = |priority_queue: &mut PriorityQueue, at: Instant| {
        let request = priority_queue.pick(100, at).remove(0);
        let target = request.target.clone();
        assert!(priority_queue.put_back(request, &[target], &locked(), at).is_none());
        priority_queue.next_wake().expect("the queue goes on")
    };
    let next = put_back(&mut priority_queue, now);
    assert!(callers[0].give_up(Duration::from_secs(10)).to_string().contains("`payment` `locked` is locked"), "it is told why");
    priority_queue.wake(next);
    let next = put_back(&mut priority_queue, next);
    priority_queue.wake(next);
    for _ in 0..2 {
        let batch = priority_queue.pick(100, next);
        assert_eq!(keys(&batch), ["locked"]);
        priority_queue.leave(&numbers(&batch));
    }
    assert!(priority_queue.is_idle(), "the one that was given up is not there any more");
}

/// A loop does not wait for a lock: its next scan finds the timer again.
#[test]
fn a_loop_is_told_of_a_lock_at_once() {
    let (mut priority_queue, now) = (PriorityQueue::default(), Instant::now());
    priority_queue.put(end("locked", 0).of_loop());
    let request = priority_queue.pick(100, now).remove(0);
    let target = request.target.clone();
    assert!(priority_queue.put_back(request, &[target], &locked(), now).is_some());
    assert!(priority_queue.is_idle());
}

/// The verb sends to an instance that is locked and to one that is not.
#[test]
fn a_report_that_waits_for_a_locked_receiver_keeps_no_other_instance_waiting() {
    let (mut priority_queue, now) = (PriorityQueue::default(), Instant::now());
    priority_queue.put(reporting("sender", &["locked", "free"]));
    let report = priority_queue.pick(100, now).remove(0);
    assert!(priority_queue.put_back(report, &[InstanceKey::new("payment", "locked")], &locked(), now).is_none());
    ["free", "sender", "locked"].into_iter().for_each(|key| priority_queue.put(send(key)));
    priority_queue.put(reporting("another", &["locked", "free"]));
    let batch = priority_queue.pick(100, now);
    assert_eq!(keys(&batch), ["free", "sender", "locked"]);
    let mut left = Vec::new();
    priority_queue.leave(&numbers(&batch));
    for n in 1..10 {
        let now = now + n * Duration::from_secs(1);
        priority_queue.wake(now);
        let batch = priority_queue.pick(100, now);
        priority_queue.leave(&numbers(&batch));
        left.extend(keys(&batch).into_iter().map(str::to_owned));
    }
    left.sort();
    assert_eq!(left, ["another", "sender"]);
    assert!(priority_queue.is_idle());
}

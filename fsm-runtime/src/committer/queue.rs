//! The queue of requests that wait for a commit. Two requests for the same instance are never in flight at the same time.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fsm_core::commit::instance_key::InstanceKey;
use fsm_store::error::StoreError;
use tokio::sync::Notify;

use super::lane_limit::{CommitSlot, LaneLimit, TOO_LONG};
use super::priority_queue::PriorityQueue;
use super::request::{Number, Request};
use crate::error::Error;
use crate::guard;

/// A batch that was taken from the queue.
pub(crate) struct Taken<'l> {
    /// When it was taken.
    pub(crate) at: Instant,
    pub(crate) batch: Vec<Request>,
    /// Dropped when its commit has ended.
    pub(crate) slot: CommitSlot<'l>,
}

/// The next step of a lane.
enum Step<'l> {
    Take(Taken<'l>),
    /// Requests can go when a commit slot is free.
    NeedsSlot,
    /// Nothing can go until it is woken, or for this time.
    Wait(Option<Duration>),
    /// The queue is closed and empty.
    End,
}

/// The queue of waiting requests.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    priority_queue: PriorityQueue,
    /// The times at which the batches in flight were taken.
    taken: Vec<Instant>,
    is_closed: bool,
    /// The committer has ended and carries out nothing more.
    is_abandoned: bool,
}

impl Queue {
    pub(crate) fn put(&self, request: Request) {
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            return request.answer(Err(Error::stopping()));
        }
        state.priority_queue.put(request);
        drop(state);
        self.wake.notify_one();
    }

    /// Puts a request that was taken back into the queue, for a retry after `wait`. Works on a closed queue too.
    pub(crate) fn put_again(&self, request: Request, wait: Duration) {
        let mut state = self.state();
        if state.is_abandoned {
            drop(state);
            return request.answer(Err(Error::stopping()));
        }
        if wait.is_zero() {
            state.priority_queue.put(request);
        } else {
            state.priority_queue.put_later(request, Instant::now() + wait);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for requests and takes up to `most` of them: no two for the same instance, and none for an instance that is in flight. While
    /// other batches are in flight, it waits until as many requests can go as `lane_limit` demands, and for a commit slot. It does not wait for
    /// batches that have taken too long, because they may hang. Returns `None` once the queue is closed and empty.
    pub(crate) async fn take<'l>(&self, most: usize, lane_limit: &'l LaneLimit) -> Option<Taken<'l>> {
        let mut slot = None;
        loop {
            match self.try_take(most, lane_limit, slot.take()) {
                Step::Take(taken) => return Some(taken),
                Step::NeedsSlot => slot = Some(lane_limit.slot().await),
                Step::Wait(Some(wait)) => drop(tokio::time::timeout(wait, self.wake.notified()).await),
                // No timeout: there is nothing to do until a request arrives or the queue is closed.
                Step::Wait(None) => self.wake.notified().await,
                Step::End => return None,
            }
        }
    }

    fn try_take<'l>(&self, most: usize, lane_limit: &'l LaneLimit, slot: Option<CommitSlot<'l>>) -> Step<'l> {
        let mut state = self.state();
        let now = Instant::now();
        state.priority_queue.wake(now);
        let ready = state.priority_queue.ready();
        let is_worth_it = ready >= lane_limit.smallest_batch() || state.taken.iter().all(|taken| taken.elapsed() >= TOO_LONG);
        if ready > 0 && is_worth_it {
            let Some(slot) = slot.or_else(|| lane_limit.free_slot()) else { return Step::NeedsSlot };
            let batch = state.priority_queue.pick(most, now);
            let more = state.priority_queue.ready() > 0;
            state.taken.push(now);
            drop(state);
            if more {
                self.wake.notify_one();
            }
            return Step::Take(Taken { at: now, batch, slot });
        }
        if state.is_closed && state.priority_queue.is_empty() {
            self.wake.notify_one();
            return Step::End;
        }
        let company = (ready > 0).then_some(TOO_LONG);
        let backoff = state.priority_queue.next_wake().map(|next| next.saturating_duration_since(now));
        Step::Wait(company.into_iter().chain(backoff).min())
    }

    /// Ends the batch that was taken at `taken` and releases its instances, except those of requests that were set apart or put back.
    pub(crate) fn release(&self, taken: Instant, numbers: &[Number]) {
        let mut state = self.state();
        if let Some(place) = state.taken.iter().position(|one| *one == taken) {
            state.taken.swap_remove(place);
        }
        state.priority_queue.leave(numbers);
        self.released(state);
    }

    /// Moves these requests from their lane to a task of its own, until each is [released](Queue::release_one).
    pub(super) fn set_apart(&self, batch: &[Request]) {
        self.state().priority_queue.set_apart(batch.iter().map(|request| request.number));
    }

    /// Releases a request that was set apart, unless it was put back. Returns true if it was put back.
    pub(super) fn release_one(&self, number: Number) -> bool {
        let mut state = self.state();
        let was_put_back = state.priority_queue.leave_apart(number);
        self.released(state);
        was_put_back
    }

    /// Puts back a request whose instances `locked` are locked by another transaction; nothing of it was written. It backs off, like all other
    /// requests for these instances, and is then tried again.
    pub(super) fn put_back(&self, request: Request, locked: &[InstanceKey], error: &Arc<StoreError>) {
        let mut state = self.state();
        let rejected = match state.is_abandoned {
            true => Some(request),
            false => state.priority_queue.put_back(request.unwritten(), locked, error, Instant::now()),
        };
        // Wakes a waiting lane, so that it waits no longer than the backoff.
        self.wake.notify_one();
        self.released(state);
        if let Some(request) = rejected {
            request.answer(Err(Arc::clone(error).into()));
        }
    }

    fn released(&self, state: MutexGuard<'_, State>) {
        let (more, idle) = (state.priority_queue.ready() > 0 || state.is_closed, state.priority_queue.is_idle());
        drop(state);
        if more {
            self.wake.notify_one();
        }
        if idle {
            self.emptied.notify_waiters();
        }
    }

    /// Waits until the queue is empty and no batch is in flight. It has no timeout, because a report waits for as long as the database is
    /// away. The caller sets the limit at shutdown.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.state().priority_queue.is_idle() {
                return;
            }
            emptied.await;
        }
    }

    /// Returns the number of due attempts that are worth claiming now.
    pub(crate) fn wanted(&self) -> usize {
        self.state().priority_queue.wanted(Instant::now())
    }

    /// Accepts no more requests. Those that wait are still carried out.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    /// True if the process ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Closes the queue and answers all waiting requests with an error, because they will not be carried out.
    pub(crate) fn abandon(&self) {
        let left = {
            let mut state = self.state();
            (state.is_closed, state.is_abandoned) = (true, true);
            std::mem::take(&mut state.priority_queue).into_all().collect::<Vec<_>>()
        };
        left.into_iter().for_each(|request| request.answer(Err(Error::stopping())));
        self.wake.notify_one();
    }

    /// The error for a request that gets no answer: the process stops, or a panic dropped the answer's sender.
    pub(crate) fn unanswered(&self) -> Error {
        if self.state().is_closed { Error::stopping() } else { StoreError::Interrupted.into() }
    }

    /// Returns true if no request waits and no batch is in flight.
    #[cfg(feature = "testing")]
    pub(crate) fn is_idle(&self) -> bool {
        self.state().priority_queue.is_idle()
    }

    /// Empties and reopens the queue, as after the death of the process.
    #[cfg(feature = "testing")]
    pub(crate) fn reopen(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        guard::lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use fsm_core::decide::send::Send;
    use fsm_core::ids::CallId;
    use uuid::Uuid;

    use super::*;
    use fsm_core::commit::request::RequestKind;

    fn request(key: &str) -> Request {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = CallId(Uuid::now_v7());
        let send = Send::new(id, event, 1);
        Request::new(InstanceKey::new("payment", key), RequestKind::Send(send), None)
    }

    fn numbers(batch: &[Request]) -> Vec<Number> {
        batch.iter().map(|request| request.number).collect()
    }

    #[tokio::test]
    async fn a_commit_that_hangs_keeps_no_other_waiting_for_company() {
        let (queue, crowded) = (Queue::default(), LaneLimit::crowded());
        queue.put(request("one"));
        let hanging = queue.take(10, &crowded).await.expect("the queue is open");
        assert_eq!(hanging.batch.len(), 1);
        queue.put(request("two"));
        let next = queue.take(10, &crowded).await.expect("the queue is open");
        assert_eq!(next.batch.len(), 1);
        assert!(hanging.at.elapsed() >= TOO_LONG, "it waits for company at first");
    }

    #[tokio::test]
    async fn what_waits_behind_a_commit_goes_together_when_that_ends() {
        let (queue, crowded) = (Queue::default(), LaneLimit::crowded());
        queue.put(request("one"));
        let first = queue.take(10, &crowded).await.expect("the queue is open");
        ["two", "three"].into_iter().for_each(|key| queue.put(request(key)));
        let (next, ()) = tokio::join!(queue.take(10, &crowded), async { queue.release(first.at, &numbers(&first.batch)) });
        let next = next.expect("the queue is open");
        assert_eq!(next.batch.len(), 2);
        let enough = crowded.smallest_batch();
        (0..enough).for_each(|n| queue.put(request(&n.to_string())));
        assert_eq!(queue.take(100, &crowded).await.map(|taken| taken.batch.len()), Some(enough), "these are enough");
        assert!(next.at.elapsed() < TOO_LONG, "the commit before them is still in flight");
    }

    #[tokio::test]
    async fn a_batch_grows_while_it_waits_for_a_slot() {
        let (queue, crowded) = (Queue::default(), LaneLimit::crowded());
        let slots: Vec<_> = std::iter::from_fn(|| crowded.free_slot()).collect();
        queue.put(request("one"));
        let (taken, ()) = tokio::join!(queue.take(10, &crowded), async {
            queue.put(request("two"));
            drop(slots);
        });
        assert_eq!(taken.map(|taken| taken.batch.len()), Some(2));
    }

    async fn next(queue: &Queue) -> (Instant, Vec<Request>) {
        let limit = LaneLimit::default();
        let taken = queue.take(10, &limit).await.expect("the queue is open");
        (taken.at, taken.batch)
    }

    #[tokio::test]
    async fn a_request_that_waits_for_its_retry_keeps_no_other_waiting() {
        let queue = Queue::default();
        let wait = Duration::from_millis(50);
        let put = Instant::now();
        queue.put_again(request("one").again(), wait);
        queue.put(request("two"));
        let (taken, batch) = next(&queue).await;
        assert_eq!(&*batch[0].target.key, "two");
        queue.release(taken, &numbers(&batch));
        let (_, batch) = next(&queue).await;
        assert_eq!(&*batch[0].target.key, "one");
        assert!(put.elapsed() >= wait);
    }

    #[tokio::test]
    async fn a_request_of_a_batch_that_failed_for_an_unknown_cause_is_committed_alone() {
        let queue = Queue::default();
        queue.put(request("one"));
        ["two", "three"].into_iter().for_each(|key| queue.put_again(request(key).alone(), Duration::ZERO));
        queue.put(request("four"));
        let mut batches = Vec::new();
        while batches.len() < 3 {
            let (taken, batch) = next(&queue).await;
            queue.release(taken, &numbers(&batch));
            batches.push(batch.iter().map(|request| request.target.key.to_string()).collect::<Vec<_>>());
        }
        assert_eq!(batches, [vec!["one", "four"], vec!["two"], vec!["three"]]);
    }

    #[tokio::test]
    async fn a_closed_queue_carries_out_what_is_retried_and_an_abandoned_one_answers_it() {
        let asked = |queue: &Queue, key: &str| {
            let (reply, answer) = tokio::sync::oneshot::channel();
            let request = request(key).with_reply(reply);
            queue.put_again(request, Duration::from_millis(1));
            answer
        };
        let queue = Queue::default();
        queue.close();
        let first = asked(&queue, "one");
        let (taken, batch) = next(&queue).await;
        queue.release(taken, &numbers(&batch));
        batch.into_iter().for_each(|request| request.answer(Ok(fsm_core::commit::request::Reply::Fired)));
        assert!(first.await.expect("it is answered").is_ok());
        let second = asked(&queue, "two");
        queue.abandon();
        assert!(second.await.expect("it is answered").is_err_and(|error| error.is_stopping()));
        assert!(asked(&queue, "three").await.expect("it is answered").is_err_and(|error| error.is_stopping()));
        assert!(queue.take(10, &LaneLimit::default()).await.is_none());
        queue.emptied().await;
    }
}

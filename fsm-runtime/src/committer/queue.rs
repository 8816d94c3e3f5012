//! The requests that wait for a commit. Two that concern the same instance are never under way at once.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::lines::Number;
use super::priority_queue::PriorityQueue;
use super::request::{InstanceKey, Request};
use crate::error::{Error, Kind};
use crate::guard;
use crate::store::error::StoreError;

/// A commit that takes longer than this may never end, and nobody waits for company because of it.
pub(super) const TOO_LONG: Duration = Duration::from_millis(20);

/// The waiting requests.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    priority_queue: PriorityQueue,
    /// When each batch that is under way was taken.
    taken: Vec<Instant>,
    is_closed: bool,
    /// Nobody will carry out anything any more.
    is_abandoned: bool,
}

impl Queue {
    pub(crate) fn put(&self, request: Request) {
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            return request.answer(Err(crate::error::Kind::Stopping.into()));
        }
        state.priority_queue.put(request);
        drop(state);
        self.wake.notify_one();
    }

    /// Puts back one that was taken, for a retry after `wait`: also into a queue that is closed.
    pub(crate) fn put_again(&self, request: Request, wait: Duration) {
        let mut state = self.state();
        if state.is_abandoned {
            drop(state);
            return request.answer(Err(crate::error::Kind::Stopping.into()));
        }
        if wait.is_zero() {
            state.priority_queue.put(request);
        } else {
            state.priority_queue.put_later(request, Instant::now() + wait);
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for requests and takes up to `most` of them, no two for the same instance and none for one that is under
    /// way. While others are under way, not before there are `enough`; one that takes too long is not waited for, for it may hang.
    /// With them comes when they were taken. `None` once the queue is closed and empty.
    pub(crate) async fn take(&self, most: usize, enough: impl Fn() -> usize) -> Option<(Instant, Vec<Request>)> {
        loop {
            let wait = {
                let mut state = self.state();
                let now = Instant::now();
                state.priority_queue.wake(now);
                let ready = state.priority_queue.ready();
                let is_worth_it = ready >= enough() || state.taken.iter().all(|taken| taken.elapsed() >= TOO_LONG);
                if ready > 0 && is_worth_it {
                    let batch = state.priority_queue.pick(most, now);
                    let more = state.priority_queue.ready() > 0;
                    state.taken.push(now);
                    drop(state);
                    if more {
                        self.wake.notify_one();
                    }
                    return Some((now, batch));
                }
                if state.is_closed && state.priority_queue.is_empty() {
                    self.wake.notify_one();
                    return None;
                }
                let company = (ready > 0).then_some(TOO_LONG);
                let rest = state.priority_queue.next_wake().map(|next| next.saturating_duration_since(now));
                company.into_iter().chain(rest).min()
            };
            match wait {
                Some(wait) => drop(tokio::time::timeout(wait, self.wake.notified()).await),
                // No bound: there is nothing to do until somebody asks for something, or closes the queue.
                None => self.wake.notified().await,
            }
        }
    }

    /// The batch taken then is done with, and its instances are free again, but for what is set apart or was put back.
    pub(crate) fn release(&self, taken: Instant, numbers: &[Number]) {
        let mut state = self.state();
        if let Some(place) = state.taken.iter().position(|one| *one == taken) {
            state.taken.swap_remove(place);
        }
        state.priority_queue.leave(numbers);
        self.released(state);
    }

    /// These are carried out by a task of their own, each until it is [released](Queue::release_one).
    pub(super) fn set_apart(&self, batch: &[Request]) {
        self.state().priority_queue.set_apart(batch.iter().map(|request| request.number));
    }

    /// One that was set apart is done with, unless it was put back. Whether it was.
    pub(super) fn release_one(&self, number: Number) -> bool {
        let mut state = self.state();
        let was_put_back = state.priority_queue.leave_apart(number);
        self.released(state);
        was_put_back
    }

    /// Somebody else has locked these instances, and nothing of the request was written. It goes again after a rest, like all others that
    /// concern them.
    pub(super) fn put_back(&self, request: Request, locked: &[InstanceKey], error: &Arc<StoreError>) {
        let mut state = self.state();
        let commit_log = match state.is_abandoned {
            true => Some(request),
            false => state.priority_queue.put_back(request.unwritten(), locked, error, Instant::now()),
        };
        // Those who sleep have to know when the rest is over.
        self.wake.notify_one();
        self.released(state);
        if let Some(request) = commit_log {
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

    /// Waits until nothing waits and nothing is under way. No bound: a report waits for as long as the database is away. A shutdown bounds it.
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

    /// How many due attempts are worth claiming now.
    pub(crate) fn wanted(&self) -> usize {
        self.state().priority_queue.wanted(Instant::now())
    }

    /// Takes no more requests; those that wait are still carried out.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.wake.notify_one();
    }

    /// Closes the queue, and answers all that waits: nobody will carry it out.
    pub(crate) fn abandon(&self) {
        let left = {
            let mut state = self.state();
            (state.is_closed, state.is_abandoned) = (true, true);
            std::mem::take(&mut state.priority_queue).into_all().collect::<Vec<_>>()
        };
        left.into_iter().for_each(|request| request.answer(Err(crate::error::Kind::Stopping.into())));
        self.wake.notify_one();
    }

    /// Why a request gets no answer: the process stops, or a panic took the answer along.
    pub(crate) fn unanswered(&self) -> Error {
        if self.state().is_closed { Kind::Stopping.into() } else { StoreError::Interrupted.into() }
    }

    /// Nothing waits and nothing is under way.
    #[cfg(feature = "testing")]
    pub(crate) fn is_idle(&self) -> bool {
        self.state().priority_queue.is_idle()
    }

    /// Forgets what waits and is under way, as the death of the process would, and takes requests again.
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

    use super::super::request::RequestKind;
    use super::*;

    fn request(key: &str) -> Request {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = CallId(Uuid::now_v7());
        let send = Send { id, event, dedup: None, deliver_at: None, reject_if_busy: false, inbox_limit: 1 };
        Request::new(InstanceKey::new("payment", key), RequestKind::Send(send), None)
    }

    fn numbers(batch: &[Request]) -> Vec<Number> {
        batch.iter().map(|request| request.number).collect()
    }

    #[tokio::test]
    async fn a_commit_that_hangs_keeps_no_other_waiting_for_company() {
        let queue = Queue::default();
        queue.put(request("one"));
        let (taken, hanging) = queue.take(10, || 32).await.expect("the queue is open");
        assert_eq!(hanging.len(), 1);
        queue.put(request("two"));
        let (_, batch) = queue.take(10, || 32).await.expect("the queue is open");
        assert_eq!(batch.len(), 1);
        assert!(taken.elapsed() >= TOO_LONG, "it waits for company at first");
    }

    #[tokio::test]
    async fn what_waits_behind_a_commit_goes_together_when_that_ends() {
        let queue = Queue::default();
        queue.put(request("one"));
        let (taken, batch) = queue.take(10, || 32).await.expect("the queue is open");
        ["two", "three"].into_iter().for_each(|key| queue.put(request(key)));
        let (next, ()) = tokio::join!(queue.take(10, || 32), async { queue.release(taken, &numbers(&batch)) });
        assert_eq!(next.map(|(_, batch)| batch.len()), Some(2));
        ["four", "five"].into_iter().for_each(|key| queue.put(request(key)));
        assert_eq!(queue.take(10, || 2).await.map(|(_, batch)| batch.len()), Some(2), "two are enough");
    }

    async fn next(queue: &Queue) -> (Instant, Vec<Request>) {
        queue.take(10, || 1).await.expect("the queue is open")
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
        batch.into_iter().for_each(|request| request.answer(Ok(super::super::request::Reply::Fired)));
        assert!(first.await.expect("it is answered").is_ok());
        let second = asked(&queue, "two");
        queue.abandon();
        assert!(second.await.expect("it is answered").is_err_and(|error| error.is_stopping()));
        assert!(asked(&queue, "three").await.expect("it is answered").is_err_and(|error| error.is_stopping()));
        assert!(queue.take(10, || 1).await.is_none());
        queue.emptied().await;
    }
}

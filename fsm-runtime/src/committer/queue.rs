//! The requests that wait for a commit. Two that concern the same instance are never under way at once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::request::{Request, Whose};
use super::waiting::Waiting;
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
    waiting: Waiting,
    under_way: HashSet<Whose>,
    /// When each batch that is under way was taken.
    taken: Vec<Instant>,
    /// Those that are retried at a moment.
    later: Vec<(Instant, Request)>,
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
        state.waiting.put(request);
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
            state.waiting.put(request);
        } else {
            state.later.push((Instant::now() + wait, request));
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for requests and takes up to `most` of them, no two for the same instance and none for one that is under
    /// way. While others are under way, not before there are `enough`; one that takes too long is not waited for, for it may hang.
    /// With them comes when they were taken. `None` once the queue is closed and empty.
    pub(crate) async fn take(&self, most: usize, enough: impl Fn() -> usize) -> Option<(Instant, Vec<Request>)> {
        loop {
            let (is_worth_it, next_retry) = {
                let mut state = self.state();
                state.retry_due(Instant::now());
                let is_worth_it = state.waiting.len() >= enough() || state.taken.iter().all(|taken| taken.elapsed() >= TOO_LONG);
                let (now, State { waiting, under_way, .. }) = (Instant::now(), &mut *state);
                let batch = if is_worth_it { waiting.pick(most, under_way, now) } else { Vec::new() };
                if !batch.is_empty() {
                    let more = state.has_more();
                    state.taken.push(now);
                    drop(state);
                    if more {
                        self.wake.notify_one();
                    }
                    return Some((now, batch));
                }
                if state.is_closed && !state.has_more() {
                    self.wake.notify_one();
                    return None;
                }
                (is_worth_it || state.waiting.is_empty(), state.next_retry())
            };
            let company = (!is_worth_it).then_some(TOO_LONG);
            let retry = next_retry.map(|at| at.saturating_duration_since(Instant::now()));
            match company.into_iter().chain(retry).min() {
                Some(wait) => drop(tokio::time::timeout(wait, self.wake.notified()).await),
                // No bound: there is nothing to do until somebody asks for something, or closes the queue.
                None => self.wake.notified().await,
            }
        }
    }

    /// These instances, of the batch taken then, are free again.
    pub(crate) fn release(&self, taken: Instant, whose: &[Whose]) {
        let mut state = self.state();
        if let Some(place) = state.taken.iter().position(|one| *one == taken) {
            state.taken.swap_remove(place);
        }
        for whose in whose {
            state.under_way.remove(whose);
        }
        let (more, idle) = (state.has_more(), state.is_idle());
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
            if self.state().is_idle() {
                return;
            }
            emptied.await;
        }
    }

    /// How many due attempts are worth claiming now.
    pub(crate) fn wanted(&self) -> usize {
        self.state().waiting.wanted(Instant::now())
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
            let later = std::mem::take(&mut state.later).into_iter().map(|(_, request)| request);
            later.chain(std::mem::take(&mut state.waiting).into_all()).collect::<Vec<_>>()
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
        self.state().is_idle()
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

impl State {
    fn is_idle(&self) -> bool {
        !self.has_more() && self.under_way.is_empty()
    }

    fn has_more(&self) -> bool {
        !self.waiting.is_empty() || !self.later.is_empty()
    }

    fn next_retry(&self) -> Option<Instant> {
        self.later.iter().map(|(at, _)| *at).min()
    }

    /// Those whose moment has come wait like any other.
    fn retry_due(&mut self, now: Instant) {
        for (_, request) in self.later.extract_if(.., |(at, _)| *at <= now) {
            self.waiting.put(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use fsm_core::decide::send::Send;
    use fsm_core::ids::CallId;
    use uuid::Uuid;

    use super::super::request::{What, touched};
    use super::*;

    fn request(key: &str) -> Request {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = CallId(Uuid::now_v7());
        let send = Send { id, event, dedup: None, deliver_at: None, reject_if_busy: false, inbox_limit: 1 };
        Request::new(Whose::new("payment", key), What::Send(send), None)
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
        let (next, ()) = tokio::join!(queue.take(10, || 32), async { queue.release(taken, &touched(&batch)) });
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
        assert_eq!(&*batch[0].whose.key, "two");
        queue.release(taken, &touched(&batch));
        let (_, batch) = next(&queue).await;
        assert_eq!(&*batch[0].whose.key, "one");
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
            queue.release(taken, &touched(&batch));
            batches.push(batch.iter().map(|request| request.whose.key.to_string()).collect::<Vec<_>>());
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
        queue.release(taken, &touched(&batch));
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

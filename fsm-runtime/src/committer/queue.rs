//! The requests that wait for a commit. Two that concern the same instance are never under way at once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::request::{Request, Whose};
use super::waiting::Waiting;

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
    is_closed: bool,
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

    /// Waits for requests and takes up to `most` of them, no two for the same instance and none for one that is under
    /// way. While others are under way, not before there are `enough`; one that takes too long is not waited for, for it may hang.
    /// With them comes when they were taken. `None` once the queue is closed and empty.
    pub(crate) async fn take(&self, most: usize, enough: impl Fn() -> usize) -> Option<(Instant, Vec<Request>)> {
        loop {
            let is_worth_it = {
                let mut state = self.state();
                let is_worth_it = state.waiting.len() >= enough() || state.taken.iter().all(|taken| taken.elapsed() >= TOO_LONG);
                let (now, State { waiting, under_way, .. }) = (Instant::now(), &mut *state);
                let batch = if is_worth_it { waiting.pick(most, under_way, now) } else { Vec::new() };
                if !batch.is_empty() {
                    let more = !state.waiting.is_empty();
                    state.taken.push(now);
                    drop(state);
                    if more {
                        self.wake.notify_one();
                    }
                    return Some((now, batch));
                }
                if state.is_closed && state.waiting.is_empty() {
                    self.wake.notify_one();
                    return None;
                }
                is_worth_it || state.waiting.is_empty()
            };
            if is_worth_it {
                self.wake.notified().await;
            } else {
                let _ = tokio::time::timeout(TOO_LONG, self.wake.notified()).await;
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
        let (more, idle) = (!state.waiting.is_empty(), state.is_idle());
        drop(state);
        if more {
            self.wake.notify_one();
        }
        if idle {
            self.emptied.notify_waiters();
        }
    }

    /// Waits until nothing waits and nothing is under way.
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
        self.state.lock().expect("no code panics while it holds the queue")
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
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
}

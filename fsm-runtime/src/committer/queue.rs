//! The requests that wait for a commit. Two that concern the same instance are never under way at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fsm_core::call::Attempt;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Fate, Send};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::Outcome;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::waiting::Waiting;
use crate::error::Error;
use crate::store::epoch::Epoch;
use crate::store::lock::{Memory, Seen};
use crate::store::timers::DueTimer;

/// A commit that takes longer than this may never end, and nobody waits for company because of it.
pub(super) const TOO_LONG: Duration = Duration::from_millis(20);
/// How long a caller waits for a database that is away before it is told.
const PATIENCE: Duration = Duration::from_secs(10);

/// An instance by the user's name for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Whose {
    pub(crate) machine: Arc<str>,
    pub(crate) key: Arc<str>,
}

/// Something that is to be decided and written.
pub(crate) struct Request {
    pub(crate) whose: Whose,
    pub(crate) what: What,
    /// How often it was put back: after an unknown commit it may have been carried out already.
    pub(crate) tries: u32,
    since: Instant,
    reply: Option<oneshot::Sender<Result<Reply, Error>>>,
}

/// The five reasons for which the database learns about an instance, at one door.
pub(crate) enum What {
    Send(Send),
    Settle(Box<Report>),
    Fire(Box<DueTimer>),
    Operate(Box<Operation>),
}

/// How an attempt ended, from the session that held it, or from the sweeper.
pub(crate) struct Report {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) outcome: Outcome,
    /// The slot it ran in: the next call of the instance runs on in it.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// What is known of its instance.
    pub(crate) memory: Memory,
    /// The call that follows from it by itself: what it carries is sealed for that call.
    pub(crate) fresh: CallId,
}

impl Report {
    pub(crate) fn new(attempt: Arc<Attempt>, outcome: Outcome) -> Report {
        Report { attempt, outcome, permit: None, memory: Memory::Nothing, fresh: CallId(Uuid::now_v7()) }
    }
}

/// The answer to a request that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Sent {
        instance: InstanceId,
        call: CallId,
        fate: Fate,
    },
    /// Whether the report counted; a late one changes nothing.
    Settled {
        counted: bool,
    },
    Fired,
    Operated,
}

impl Whose {
    pub(crate) fn new(machine: &str, key: &str) -> Whose {
        Whose { machine: machine.into(), key: key.into() }
    }
}

impl Request {
    pub(crate) fn new(whose: Whose, what: What, reply: Option<oneshot::Sender<Result<Reply, Error>>>) -> Request {
        Request { whose, what, tries: 0, since: Instant::now(), reply }
    }

    pub(crate) fn again(self) -> Request {
        Request { tries: self.tries + 1, ..self }
    }

    pub(crate) fn is_patient(&self) -> bool {
        match &self.what {
            // What the sweeper and the finder ask for they find again, and they have others to look after.
            What::Settle(report) if report.outcome == Outcome::Lost => false,
            What::Fire(_) => false,
            What::Settle(_) => true,
            What::Send(_) | What::Operate(_) => self.since.elapsed() < PATIENCE,
        }
    }

    /// Whether it is about what waited in the database for its time.
    pub(super) fn was_due(&self) -> bool {
        match &self.what {
            What::Send(_) | What::Operate(_) => false,
            What::Settle(report) => report.attempt.was_due(),
            What::Fire(_) => true,
        }
    }

    /// Whether it may well be carried out by one statement, without a lock while it is decided.
    pub(crate) fn is_short(&self) -> bool {
        let is_first = self.tries == 0;
        match &self.what {
            What::Send(_) => is_first,
            What::Settle(report) => is_first && report.outcome.sends().is_empty() && report.memory != Memory::SomethingWaits,
            What::Fire(_) | What::Operate(_) => false,
        }
    }

    /// How its instance was seen here last, if that may still be so; with SQLite, in that epoch.
    pub(crate) fn seen(&self, epoch: Option<Epoch>) -> Option<&Seen> {
        match &self.what {
            What::Settle(report) => report.memory.seen(epoch),
            _ => None,
        }
    }

    pub(crate) fn answer(self, answer: Result<Reply, Error>) {
        if let Some(reply) = self.reply {
            // Nobody may be there to hear it: the caller went away, and the request was carried out all the same.
            let _ = reply.send(answer);
        } else if let Err(error) = answer {
            tracing::warn!(machine = &*self.whose.machine, key = &*self.whose.key, %error, "a request of the engine's own failed");
        }
    }

    /// The end of an attempt, if that is what it is about.
    pub(crate) fn report(&mut self) -> Option<&mut Report> {
        match &mut self.what {
            What::Settle(report) => Some(report),
            _ => None,
        }
    }

    pub(crate) fn take_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.report()?.permit.take()
    }

    /// Every instance that carrying it out may write.
    pub(super) fn touches(&self) -> Vec<Whose> {
        let mut touches = vec![self.whose.clone()];
        if let What::Settle(report) = &self.what {
            touches.extend(report.outcome.sends().iter().map(|send| Whose::new(&send.machine, &send.key)));
        }
        touches
    }
}

/// Every instance that a batch may write.
pub(crate) fn touched(batch: &[Request]) -> Vec<Whose> {
    batch.iter().flat_map(Request::touches).collect()
}

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
    use super::*;

    fn request(key: &str) -> Request {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = CallId(Uuid::now_v7());
        let send = Send { id, event, dedup: None, deliver_at: None, or_refuse: false, inbox_limit: 1 };
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

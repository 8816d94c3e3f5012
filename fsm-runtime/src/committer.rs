//! Group commit: the requests that arrive during one commit form the next batch.

mod commit_log;
mod commit_metrics;
mod conclusion;
pub(crate) mod environment;
pub(crate) mod instance_queues;
pub(crate) mod lane_limit;
#[cfg(feature = "postgres")]
mod on_postgres;
#[cfg(feature = "sqlite")]
mod on_sqlite;
mod priority_queue;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod snapshot_cache;
pub(crate) mod ticket;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::Reply;
use fsm_store::drivers::Driver;
use fsm_store::error::StoreError;
use fsm_store::error::class::Batch;
use fsm_store::held;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::guard;
use crate::in_flight::InFlightCommit;
use crate::metrics;
use crate::running::Unreported;
use crate::supervise;
use environment::CommitOutcome;
use queue::Taken;
use request::{Number, Request};
use retry::Next;
use ticket::{Ticket, Withdrawal};

/// The maximum number of requests in one commit. With more, the first request waits too long for its answer. SQLite has a higher limit
/// because only one commit is in flight at a time and each waits for the disk.
const MOST: usize = 100;
const MOST_IN_SQLITE: usize = 250;

/// The requests of a batch that met a lock are tried one by one, at most `SINGLY` at the same time. After `IN_A_ROW` consecutive requests
/// that met a lock, the rest is not tried.
const SINGLY: usize = 3;
const IN_A_ROW: usize = 8;

/// A batch that was committed. Its consequences in this process (answers, wake-ups, runs) are still to be carried out.
struct Committed {
    batch: Vec<Request>,
    commit_outcomes: Vec<CommitOutcome>,
    _under_way: InFlightCommit,
}

/// The instances of a batch that is in flight. They are released on drop, also after a panic.
struct HeldInstances {
    engine: Arc<Engine>,
    taken: std::time::Instant,
    numbers: Vec<Number>,
}

impl Drop for HeldInstances {
    fn drop(&mut self) {
        self.engine.queue.release(self.taken, &self.numbers);
    }
}

/// A batch whose commit is in flight. If the commit panics, its outcome is unknown and each request is decided again, as after a lost
/// connection.
struct InFlightBatch<'e> {
    engine: &'e Engine,
    batch: Vec<Request>,
}

impl Drop for InFlightBatch<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for request in std::mem::take(&mut self.batch) {
            let request = request.after_a_panic();
            match request.wait_after_a_panic() {
                Some(wait) => self.engine.queue.put_again(request, wait),
                None => request.answer(Err(StoreError::Interrupted.into())),
            }
        }
    }
}

impl Engine {
    /// Passes a request to the committer and waits for its answer. After the first poll the request is carried out even if the caller goes
    /// away. Returns an error when the caller's patience ends.
    pub(crate) async fn request(&self, request: impl FnOnce(oneshot::Sender<Result<Reply, Error>>) -> Request) -> Result<Reply, Error> {
        self.ask(request).await
    }

    /// The same for a request that is withdrawn at `until`, or when the caller goes away. Only a commit that has begun goes on then.
    pub(crate) async fn request_until<R>(&self, until: Instant, request: R) -> Result<Reply, Error>
    where
        R: FnOnce(oneshot::Sender<Result<Reply, Error>>) -> Request,
    {
        let begun = Instant::now();
        let withdrawal = Withdrawal(Arc::new(Ticket::until(until)));
        let asked = self.ask(|reply| request(reply).with_ticket(Arc::clone(&withdrawal.0)));
        match tokio::time::timeout_at(until, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(withdrawal.0.give_up(until - begun)),
        }
    }

    /// Passes a request to the committer at once and returns a future of its answer. The caller's patience begins now.
    pub(crate) fn ask<R>(&self, request: R) -> impl Future<Output = Result<Reply, Error>> + Send + use<R>
    where
        R: FnOnce(oneshot::Sender<Result<Reply, Error>>) -> Request,
    {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let (patience, commits) = (self.limits.patience, Arc::clone(&self.last_commit));
        let (ticket, begun) = (request.ticket(), Instant::now());
        let checked = self.check_held(&request.target);
        if checked.is_ok() {
            self.queue.put(request);
        }
        let queue = Arc::clone(&self.queue);
        async move {
            checked?;
            let unanswered = |_| Err(queue.unanswered());
            // The report of an attempt has no time limit, because it must not be given up. A request of a loop is answered after one try.
            let Some(ticket) = ticket else { return answer.await.unwrap_or_else(unanswered) };
            let mut answer = std::pin::pin!(answer);
            let mut since = begun;
            loop {
                // A deadline beyond the range of the clock means no deadline.
                let Some(deadline) = since.checked_add(patience) else { return answer.await.unwrap_or_else(unanswered) };
                if let Ok(answered) = tokio::time::timeout_at(deadline, answer.as_mut()).await {
                    return answered.unwrap_or_else(unanswered);
                }
                match ticket.progress_since(since, commits.latest()) {
                    // The patience starts again with each progress: another commit succeeded while the request waited, or its own commit
                    // began.
                    Some(progress) => since = progress,
                    None => return Err(ticket.give_up(patience)),
                }
            }
        }
    }

    /// Refuses at once a request that could only succeed after the calling verb has ended.
    fn check_held(&self, InstanceKey { machine, key, .. }: &InstanceKey) -> Result<(), Error> {
        let store = self.store.id();
        if !self.store.is_postgres() && held::has_writer(store) {
            return Err(StoreError::SelfDeadlock.into());
        }
        if held::has_locked(store, machine, key) {
            let why = "until it ends: use `ctx.send`, or `send_in` in that transaction";
            return Err(Error::input(format!("`{machine}` `{}` is locked by this verb's own transaction {why}", key.escape_debug())));
        }
        Ok(())
    }

    /// Runs one commit lane. The lanes share the queue. Two lanes never handle the same instance at the same time.
    pub(crate) async fn commit_loop(self: Arc<Self>) {
        let most = if self.store.is_postgres() { MOST } else { MOST_IN_SQLITE };
        loop {
            let lane_limit = self.lane_limit();
            let Some(Taken { at: taken, mut batch, slot }) = self.queue.take(most, &lane_limit).await else { return };
            let numbers = batch.iter().map(|request| request.number).collect();
            let held = HeldInstances { engine: Arc::clone(&self), taken, numbers };
            batch.retain(Request::begin);
            let touched = request::touched(&batch);
            self.snapshot_cache.attach(&mut batch, &touched);
            let requests = batch.len();
            let committed = self.carry_out(batch).await;
            drop(slot);
            lane_limit.record(taken.elapsed());
            if committed.is_some() {
                metrics::commit(requests, taken.elapsed());
            }
            match committed {
                // SQLite has one writer: it starts the next batch while the consequences of this one are carried out in a task.
                Some(committed) if committed.batch.len() > 1 && !self.store.is_postgres() => {
                    let engine = Arc::clone(&self);
                    self.spawn(async move {
                        engine.conclude_all(committed);
                        drop(held);
                    });
                }
                committed => {
                    committed.into_iter().for_each(|committed| self.conclude_all(committed));
                    drop(held);
                }
            }
        }
    }

    /// The commit counts as in flight until its consequences are carried out: only then is `committed` dropped as a whole.
    fn conclude_all(self: &Arc<Self>, committed: Committed) {
        self.conclude(committed.batch, committed.commit_outcomes);
    }

    /// Commits a batch and returns it if it was committed. If the commit failed, the requests are put back, answered with the error, or
    /// tried one by one.
    async fn carry_out(self: &Arc<Self>, batch: Vec<Request>) -> Option<Committed> {
        if batch.is_empty() {
            return None;
        }
        let mut kept = InFlightBatch { engine: self, batch };
        let error = {
            let under_way = self.in_flight.begin();
            match self.commit(&kept.batch).await {
                Ok(commit_outcomes) => {
                    self.last_commit.note();
                    self.outage.succeeded();
                    return Some(Committed { batch: std::mem::take(&mut kept.batch), commit_outcomes, _under_way: under_way });
                }
                Err(error) => Arc::new(error),
            }
        };
        if error.is_locked() {
            self.retry_locked(std::mem::take(&mut kept.batch), &error);
            return None;
        }
        if kept.batch.len() == 1 || error.class().batch() != Batch::EachAtOnce {
            self.put_back(std::mem::take(&mut kept.batch), &error);
            return None;
        }
        // One request can fail the transaction of the whole batch. Tried one by one, only that request fails.
        tracing::debug!(%error, requests = kept.batch.len(), "a commit failed; its requests are tried one by one");
        kept.batch.reverse();
        while let Some(request) = kept.batch.pop() {
            if let Some(committed) = Box::pin(self.carry_out(vec![request])).await {
                self.conclude_all(committed);
            }
        }
        None
    }

    /// Handles a commit that failed because another transaction holds a lock; nothing was written. The error does not name the instance, so
    /// each request is tried on its own, in a task beside the lane, because the lane has other requests to commit. A request that meets the
    /// lock again backs off.
    fn retry_locked(self: &Arc<Self>, mut batch: Vec<Request>, error: &Arc<StoreError>) {
        if batch.len() == 1 {
            let request = batch.remove(0);
            let target = [request.target.clone()];
            self.note_unreported(&request, error);
            return self.queue.put_back(request, &target, error);
        }
        tracing::debug!(%error, requests = batch.len(), "a commit met a lock; its requests are tried one by one");
        self.queue.set_apart(&batch);
        let (engine, error) = (Arc::clone(self), Arc::clone(error));
        self.spawn(async move {
            let in_a_row = &AtomicUsize::new(0);
            let (engine, error) = (&engine, &error);
            let singly = batch.into_iter().map(|request| async move {
                let number = request.number;
                // If no request gets through, a whole table is probably locked. The rest is treated as locked without a try, so that those
                // callers get that error too.
                if in_a_row.load(Ordering::Relaxed) >= IN_A_ROW {
                    engine.retry_locked(vec![request], error);
                } else {
                    let one = async {
                        if let Some(committed) = engine.carry_out(vec![request]).await {
                            engine.conclude_all(committed);
                        }
                    };
                    // After a panic the request must still leave the queue, or it would block the requests behind it.
                    if let Err(text) = guard::to_its_end("a commit", Box::pin(one)).await {
                        supervise::log_panic("committer", &text);
                    }
                }
                match engine.queue.release_one(number) {
                    true => in_a_row.fetch_add(1, Ordering::Relaxed),
                    false => in_a_row.swap(0, Ordering::Relaxed),
                };
            });
            futures_util::stream::iter(singly).for_each_concurrent(SINGLY, |one| one).await;
        });
    }

    async fn commit(&self, batch: &[Request]) -> Result<Vec<CommitOutcome>, StoreError> {
        self.store.may_begin_calls().await?;
        match self.store.driver() {
            #[cfg(feature = "sqlite")]
            Driver::Sqlite => self.commit_on_sqlite(batch).await,
            #[cfg(feature = "postgres")]
            Driver::Postgres => self.commit_on_postgres(batch).await,
        }
    }

    /// Handles a failed commit: each request of the batch is retried after a backoff, or answered with the error. This function does not
    /// wait.
    fn put_back(&self, batch: Vec<Request>, error: &Arc<StoreError>) {
        let (tries, requests) = (batch.iter().map(|request| request.tries).max().unwrap_or(0), batch.len());
        if !self.outage.reports_of_store(error) && retry::is_worth_a_line(tries) {
            tracing::warn!(%error, tries, requests, "a commit failed");
        }
        // It is unknown which request caused the error, so each is retried in a commit of its own.
        let is_alone = error.class().batch() == Batch::EachLater;
        for request in batch {
            match request.after(error, self.limits.patience) {
                Next::Again(wait) => {
                    self.note_unreported(&request, error);
                    let request = if is_alone { request.alone() } else { request };
                    self.queue.put_again(request.again(), wait);
                }
                Next::Return => request.answer(Err(Arc::clone(error).into())),
            }
        }
    }

    /// Records that the report of an attempt was not written yet: in the list of running attempts, and in the log if the error is
    /// permanent.
    fn note_unreported(&self, request: &Request, error: &StoreError) {
        let (Some(work), Some(report)) = (&self.work, request.report()) else { return };
        let (attempt, tries) = (&report.attempt, request.tries.saturating_add(1));
        if let Some(running) = work.running().get_mut(&(attempt.call, attempt.number)) {
            running.unreported = Some(Unreported { tries, error: error.to_string() });
        }
        if error.class().is_permanent() && retry::is_worth_a_line(request.tries) {
            let (machine, key) = (&*request.target.machine, &*request.target.key);
            tracing::error!(machine, key, verb = attempt.verb, call = %attempt.call, attempt = attempt.number, tries, %error,
                "the database does not accept the end of an attempt; it is retried until it does");
        }
    }
}

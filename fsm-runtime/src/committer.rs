//! Groups requests into commits: whatever waits while one commit is under way makes the next one.

pub(crate) mod batch_commit;
pub(crate) mod batch_snapshot;
mod commit_log;
mod commit_metrics;
pub(crate) mod commit_outcome;
pub(crate) mod lane_limit;
pub(crate) mod lines;
mod priority_queue;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod snapshot_cache;
pub(crate) mod ticket;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fsm_core::instance::Status;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::Error;
use crate::guard;
use crate::in_flight::InFlightCommit;
use crate::metrics;
use crate::running::Unreported;
use crate::session::Renewal;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::error::class::Batch;
use crate::store::held;
use crate::store::lock::{CachedSnapshot, RowSnapshot};
use crate::store::sessions;
use crate::supervise;
use batch_commit::{BatchCommit, Speculation};
use commit_outcome::{ChangedInstance, CommitOutcome, Run};
use lane_limit::LaneLimit;
use lines::Number;
use request::{InstanceKey, Reply, Request};
use retry::Next;

/// The most requests in one commit; beyond this the answer of the first waits too long for the last. In SQLite only one commit is under
/// way, and each waits for the disk.
const MOST: usize = 100;
const MOST_IN_SQLITE: usize = 250;

/// So many requests of a batch that met a lock are tried at the same time, and no more after so many in a row that met it.
const SINGLY: usize = 3;
const IN_A_ROW: usize = 8;

/// A batch that was committed, and whose consequences this process has still to draw.
struct Committed {
    batch: Vec<Request>,
    commit_outcomes: Vec<CommitOutcome>,
    _under_way: InFlightCommit,
}

/// The instances of a batch that is under way. They are free again when this is dropped, also by a panic.
struct Held {
    engine: Arc<Engine>,
    taken: std::time::Instant,
    numbers: Vec<Number>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.engine.queue.release(self.taken, &self.numbers);
    }
}

/// A batch whose commit is under way. If that panics its end is unknown, and each request is decided again, as after a lost connection.
struct Kept<'e> {
    engine: &'e Engine,
    batch: Vec<Request>,
}

impl Drop for Kept<'_> {
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
    /// Puts a request to the committer and waits for its answer. Once this is polled the request is carried out even if
    /// the caller goes away. A caller is told when its patience ends.
    pub(crate) async fn request(&self, request: impl FnOnce(oneshot::Sender<Result<Reply, Error>>) -> Request) -> Result<Reply, Error> {
        self.ask(request).await
    }

    /// Puts a request to the committer at once, and gives its answer. A caller's patience begins now.
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
            // No bound for the end of an attempt, which must not be given up. A loop is answered after one try.
            let Some(ticket) = ticket else { return answer.await.unwrap_or_else(unanswered) };
            let mut answer = std::pin::pin!(answer);
            let mut since = begun;
            loop {
                // What is too long to be a moment has no end.
                let Some(deadline) = since.checked_add(patience) else { return answer.await.unwrap_or_else(unanswered) };
                if let Ok(answered) = tokio::time::timeout_at(deadline, answer.as_mut()).await {
                    return answered.unwrap_or_else(unanswered);
                }
                match ticket.progress_since(since, commits.latest()) {
                    // Its turn comes: those before it are committed, or it is under way for less than that.
                    Some(progress) => since = progress,
                    None => return Err(ticket.give_up(patience)),
                }
            }
        }
    }

    /// What only the end of the verb that asks could make possible is refused at once.
    fn check_held(&self, InstanceKey { machine, key }: &InstanceKey) -> Result<(), Error> {
        let store = self.store.id();
        if !self.store.is_postgres() && held::has_writer(store) {
            return Err(StoreError::Crosswise.into());
        }
        if held::has_locked(store, machine, key) {
            let why = "until it ends: use `ctx.send`, or `send_in` in that transaction";
            return Err(Error::input(format!("`{machine}` `{}` is locked by this verb's own transaction {why}", key.escape_debug())));
        }
        Ok(())
    }

    /// One lane of the committer. A few of them share the queue, never an instance.
    pub(crate) async fn commit_loop(self: Arc<Self>, lane_limit: Arc<LaneLimit>) {
        let most = if self.store.is_postgres() { MOST } else { MOST_IN_SQLITE };
        while let Some((taken, mut batch)) = self.queue.take(most, || lane_limit.enough()).await {
            let numbers = batch.iter().map(|request| request.number).collect();
            let held = Held { engine: Arc::clone(&self), taken, numbers };
            batch.retain(Request::begin);
            let touched = request::touched(&batch);
            self.snapshot_cache.attach(&mut batch, &touched);
            let requests = batch.len();
            let committed = self.carry_out(batch).await;
            lane_limit.took(taken.elapsed());
            if committed.is_some() {
                metrics::commit(requests, taken.elapsed());
            }
            match committed {
                // The one writer of SQLite need not wait until all is told.
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

    fn conclude_all(self: &Arc<Self>, committed: Committed) {
        self.conclude(committed.batch, committed.commit_outcomes);
    }

    /// What was committed and has to be concluded. What could not be is put back, answered with the error, or tried one by one.
    async fn carry_out(self: &Arc<Self>, batch: Vec<Request>) -> Option<Committed> {
        if batch.is_empty() {
            return None;
        }
        let mut kept = Kept { engine: self, batch };
        let error = {
            let under_way = self.in_flight.begin();
            match self.commit(&kept.batch).await {
                Ok(commit_outcomes) => {
                    self.last_commit.note();
                    return Some(Committed { batch: std::mem::take(&mut kept.batch), commit_outcomes, _under_way: under_way });
                }
                Err(error) => Arc::new(error),
            }
        };
        if error.is_locked() {
            self.meet_lock(std::mem::take(&mut kept.batch), &error);
            return None;
        }
        if kept.batch.len() == 1 || error.class().batch() != Batch::EachAtOnce {
            self.put_back(std::mem::take(&mut kept.batch), &error);
            return None;
        }
        // One request spoils the transaction of all: each on its own, only that one fails.
        tracing::debug!(%error, requests = kept.batch.len(), "a commit failed; its requests are tried one by one");
        kept.batch.reverse();
        while let Some(request) = kept.batch.pop() {
            if let Some(committed) = Box::pin(self.carry_out(vec![request])).await {
                self.conclude_all(committed);
            }
        }
        None
    }

    /// A lock that others hold was in the way of this commit, and nothing of it is written. It does not say whose it is, so each request
    /// is tried on its own: beside the lane, which has others to carry out. The one that meets it rests.
    fn meet_lock(self: &Arc<Self>, mut batch: Vec<Request>, error: &Arc<StoreError>) {
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
                // When nothing gets through it is not one of them: a whole table is locked, and who waits for it must be told.
                if in_a_row.load(Ordering::Relaxed) >= IN_A_ROW {
                    engine.meet_lock(vec![request], error);
                } else {
                    let one = async {
                        if let Some(committed) = engine.carry_out(vec![request]).await {
                            engine.conclude_all(committed);
                        }
                    };
                    // A panic must not keep the place of this request, nor those behind it.
                    if let Err(text) = guard::to_its_end("a commit", Box::pin(one)).await {
                        supervise::tell("committer", &text);
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
        if let Some(commit_outcomes) = self.commit_single_statement(batch).await? {
            return Ok(commit_outcomes);
        }
        let batch_commit = BatchCommit::new(self);
        let speculation = match self.speculate(&batch_commit, batch).await? {
            Some(speculation) if speculation.fits() && !self.wants_renewal() => {
                match self.store.naming(batch_commit.commit_speculation(batch, speculation).await)? {
                    Some(commit_outcomes) => return Ok(commit_outcomes),
                    None => None,
                }
            }
            speculation => speculation,
        };
        let (mut tx, file_version) = self.store.begin_at_file_version(&self.file_versions).await?;
        let number = tx.number();
        self.measure(&mut tx.conn(), number).await?;
        let commit_outcomes =
            match speculation.filter(|speculation| Some(speculation.file_version) == file_version && batch_commit.may_still_grant()) {
                Some(speculation) => batch_commit.write_speculation(&mut tx.conn(), batch, speculation).await,
                None => BatchCommit::past_locks(self).of(&mut tx.conn(), batch).await,
            };
        let commit_outcomes = self.store.naming(commit_outcomes)?;
        let renewal = self.renew_beside(&mut tx.conn()).await?;
        self.store.naming(tx.commit().await)?;
        if let (Some(work), Some(renewal)) = (&self.work, renewal) {
            work.session.note_renewal(renewal);
        }
        Ok(commit_outcomes)
    }

    /// A batch of plain requests needs no transaction around it: each trip to the server that this saves is a good part of its time.
    async fn commit_single_statement(&self, batch: &[Request]) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        if !batch.iter().all(Request::is_short) {
            return Ok(None);
        }
        let Some(mut conn) = self.store.for_commits().await? else { return Ok(None) };
        let number = conn.number();
        self.measure(&mut conn.conn(), number).await?;
        let has_memories = batch.iter().any(|request| request.seen(None).is_some());
        // What was remembered and is not true any more is looked up, before the batch takes the way under locks.
        for remembers in [true, false].into_iter().filter(|remembers| has_memories || !remembers) {
            let written = self.store.naming(BatchCommit::new(self).single_statement(&mut conn.conn(), batch, remembers).await)?;
            if written.is_some() {
                self.snapshot_cache.judge(batch, remembers);
                return Ok(written);
            }
        }
        Ok(None)
    }

    /// SQLite has one writer. What a batch of plain requests comes to is found out while another batch has its turn.
    async fn speculate(&self, batch_commit: &BatchCommit<'_>, batch: &[Request]) -> Result<Option<Speculation>, StoreError> {
        match self.file_versions.lasting() {
            Some(file_version) if batch.iter().all(Request::is_short) => {
                let mut reader = self.store.looker().await?;
                batch_commit.speculation(&mut reader.conn(), batch, file_version).await
            }
            _ => Ok(None),
        }
    }

    fn wants_renewal(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.session.wants_renewal(self.clock.now()).is_some())
    }

    /// SQLite has one writer, and who waits for it is not served in turn: under load the lease's own thread may come too
    /// late. Whoever holds the writer anyhow renews the lease beside.
    async fn renew_beside(&self, conn: &mut Conn<'_>) -> Result<Option<Renewal>, StoreError> {
        let Some(work) = self.work.as_ref().filter(|_| !self.store.is_postgres()) else { return Ok(None) };
        let Some(renewal) = work.session.wants_renewal(self.clock.now()) else { return Ok(None) };
        Ok(sessions::renew(conn, renewal.id, renewal.until).await?.then_some(renewal))
    }

    /// What follows a commit: answers, the hand-off of what may run here, and word to those who wait.
    pub(crate) fn conclude(self: &Arc<Self>, batch: Vec<Request>, commit_outcomes: Vec<CommitOutcome>) {
        for (request, commit_outcome) in batch.into_iter().zip(commit_outcomes) {
            // One that panics keeps no other from its answer.
            if let Err(text) = guard::guarded("what follows a commit", || self.conclude_one(request, commit_outcome)) {
                supervise::tell("committer", &text);
            }
        }
    }

    fn conclude_one(self: &Arc<Self>, mut request: Request, commit_outcome: CommitOutcome) {
        commit_log::tell(&request, &commit_outcome, &self.data_protection);
        commit_metrics::count(&request, &commit_outcome, &self.catalog);
        if let Some(InstanceKey { machine, key }) = commit_outcome.locked.first() {
            let error = Arc::new(StoreError::Locked { machine: machine.to_string(), key: key.to_string() });
            self.note_unreported(&request, &error);
            return self.queue.put_back(request, &commit_outcome.locked, &error);
        }
        let Some(reply) = commit_outcome.reply else {
            self.queue.put_again(request.again(), Duration::ZERO);
            return;
        };
        self.watchers.tell(&commit_outcome.moved, &commit_outcome.runs);
        if let Some(due_at) = commit_outcome.due_at {
            self.wake_up.due(due_at);
            self.notify(due_at);
        }
        for Run { target, claimed, permit } in commit_outcome.runs {
            let permit = permit.or_else(|| request.take_permit());
            self.run(target, claimed, permit);
        }
        commit_outcome.moved.iter().for_each(|moved| self.remember(moved));
        request.answer(reply);
    }

    /// How a commit left an instance is remembered where the next request for it is likely to come to this process.
    fn remember(&self, moved: &ChangedInstance) {
        let ChangedInstance { target, instance, has_timer, row_version, .. } = moved;
        let executes_here =
            || instance.newest.is_some_and(|newest| self.work.as_ref().is_some_and(|work| work.running().contains_key(&newest)));
        let is_worth_it = instance.status == Status::Running && (!instance.is_open || executes_here());
        let seen = row_version.map(|row_version| RowSnapshot { instance: Arc::clone(instance), has_timer: *has_timer, row_version });
        self.snapshot_cache.put(target, if is_worth_it { CachedSnapshot::of(instance, seen) } else { None });
    }

    /// Each request of a batch whose commit failed is retried after a backoff, or answered with the error. Nothing waits here.
    fn put_back(&self, batch: Vec<Request>, error: &Arc<StoreError>) {
        let (tries, requests) = (batch.iter().map(|request| request.tries).max().unwrap_or(0), batch.len());
        if retry::is_worth_a_line(tries) {
            tracing::warn!(%error, tries, requests, "a commit failed");
        }
        // Which of them was at fault is found out by a commit for each.
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

    /// The end of an attempt waits for the database: it shows among what runs here, and in the log where waiting alone does not help.
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

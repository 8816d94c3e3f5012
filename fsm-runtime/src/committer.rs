//! Groups requests into commits: whatever waits while one commit is under way makes the next one.

pub(crate) mod board;
pub(crate) mod memory;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod request;
mod told;
pub(crate) mod trip;
pub(crate) mod verdict;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use fsm_core::instance::Status;
use tokio::sync::oneshot;

use crate::committing::UnderWay;
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::session::Renewal;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::lock::{Memory, Seen};
use crate::store::sessions;
use pace::Pace;
use request::{Reply, Request};
use trip::{Ahead, Trip};
use verdict::{Moved, Run, Verdict};

/// The most requests in one commit; beyond this the answer of the first waits too long for the last. In SQLite only one commit is under
/// way, and each waits for the disk.
const MOST: usize = 100;
const MOST_IN_SQLITE: usize = 250;
/// The waits between tries while the database is away: doubling from the one to the other.
const AWAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A batch that was committed, and whose consequences this process has still to draw.
struct Committed {
    batch: Vec<Request>,
    verdicts: Vec<Verdict>,
    _under_way: UnderWay,
}

impl Engine {
    /// Puts a request to the committer and waits for its answer. Once this is polled the request is carried out even if
    /// the caller goes away.
    pub(crate) async fn request(&self, request: impl FnOnce(oneshot::Sender<Result<Reply, Error>>) -> Request) -> Result<Reply, Error> {
        let (reply, answer) = oneshot::channel();
        self.queue.put(request(reply));
        answer.await.unwrap_or_else(|_| Err(Kind::Stopping.into()))
    }

    /// One lane of the committer. A few of them share the queue, never an instance.
    pub(crate) async fn commit_for_ever(self: Arc<Self>, pace: Arc<Pace>) {
        let most = if self.store.is_postgres() { MOST } else { MOST_IN_SQLITE };
        while let Some((taken, mut batch)) = self.queue.take(most, || pace.enough()).await {
            let whose = request::touched(&batch);
            self.memories.remind(&mut batch, &whose);
            let committed = self.carry_out(batch).await;
            pace.took(taken.elapsed());
            match committed {
                // The one writer of SQLite need not wait until all is told.
                Some(committed) if committed.batch.len() > 1 && !self.store.is_postgres() => {
                    let engine = Arc::clone(&self);
                    self.spawn(async move {
                        engine.conclude_all(committed);
                        engine.queue.release(taken, &whose);
                    });
                }
                committed => {
                    committed.into_iter().for_each(|committed| self.conclude_all(committed));
                    self.queue.release(taken, &whose);
                }
            }
        }
    }

    fn conclude_all(self: &Arc<Self>, committed: Committed) {
        self.conclude(committed.batch, committed.verdicts);
    }

    /// What was committed and has to be concluded. What could not be is put back, answered with the error, or tried one by one.
    async fn carry_out(self: &Arc<Self>, batch: Vec<Request>) -> Option<Committed> {
        let committed = {
            let under_way = self.committing.begin();
            match self.commit(&batch).await {
                Ok(verdicts) => return Some(Committed { batch, verdicts, _under_way: under_way }),
                Err(error) => Arc::new(error),
            }
        };
        match committed {
            error if error.is_transient() && !(error.is_locked() && batch.len() > 1) => self.put_back(batch, &error).await,
            error if batch.len() == 1 => batch.into_iter().for_each(|request| request.answer(Err(Arc::clone(&error).into()))),
            // One request spoils the transaction of all: each on its own, only that one fails.
            error => {
                tracing::debug!(%error, requests = batch.len(), "a commit failed; its requests are tried one by one");
                for request in batch {
                    if let Some(committed) = Box::pin(self.carry_out(vec![request])).await {
                        self.conclude_all(committed);
                    }
                }
            }
        }
        None
    }

    async fn commit(&self, batch: &[Request]) -> Result<Vec<Verdict>, StoreError> {
        self.store.may_begin_calls().await?;
        if let Some(verdicts) = self.commit_at_once(batch).await? {
            return Ok(verdicts);
        }
        let trip = Trip::new(self);
        let ahead = match self.look_ahead(&trip, batch).await? {
            Some(ahead) if ahead.fits() && !self.wants_renewal() => match self.store.naming(trip.commit_ahead(batch, ahead).await)? {
                Some(verdicts) => return Ok(verdicts),
                None => None,
            },
            ahead => ahead,
        };
        let (mut tx, epoch) = self.store.begin_in_epoch(&self.epochs).await?;
        let verdicts = match ahead.filter(|ahead| Some(ahead.epoch) == epoch && trip.may_still_grant()) {
            Some(ahead) => trip.of_ahead(&mut tx.conn(), batch, ahead).await,
            None => Trip::new(self).of(&mut tx.conn(), batch).await,
        };
        let verdicts = self.store.naming(verdicts)?;
        let renewal = self.renew_beside(&mut tx.conn()).await?;
        self.store.naming(tx.commit().await)?;
        if let (Some(work), Some(renewal)) = (&self.work, renewal) {
            work.session.renewed(renewal);
        }
        Ok(verdicts)
    }

    /// A batch of plain requests needs no transaction around it: each trip to the server that this saves is a good part of its time.
    async fn commit_at_once(&self, batch: &[Request]) -> Result<Option<Vec<Verdict>>, StoreError> {
        if !batch.iter().all(Request::is_short) {
            return Ok(None);
        }
        let Some(mut conn) = self.store.for_commits().await? else { return Ok(None) };
        let has_memories = batch.iter().any(|request| request.seen(None).is_some());
        // What was remembered and is not true any more is looked up, before the batch takes the way under locks.
        for remembers in [true, false].into_iter().filter(|remembers| has_memories || !remembers) {
            let written = self.store.naming(Trip::new(self).at_once(&mut conn.conn(), batch, remembers).await)?;
            if written.is_some() {
                self.memories.judge(batch, remembers);
                return Ok(written);
            }
        }
        Ok(None)
    }

    /// SQLite has one writer. What a batch of plain requests comes to is found out while another batch has its turn.
    async fn look_ahead(&self, trip: &Trip<'_>, batch: &[Request]) -> Result<Option<Ahead>, StoreError> {
        match self.epochs.lasting() {
            Some(epoch) if batch.iter().all(Request::is_short) => {
                let mut reader = self.store.reader().await?;
                trip.ahead(&mut reader.conn(), batch, epoch).await
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
    pub(crate) fn conclude(self: &Arc<Self>, batch: Vec<Request>, verdicts: Vec<Verdict>) {
        for (request, verdict) in batch.into_iter().zip(verdicts) {
            told::tell(&request, &verdict, &self.discretion);
            let Some(reply) = verdict.reply else {
                self.queue.put(request.again());
                continue;
            };
            self.watchers.tell(&verdict.moved, &verdict.runs);
            if let Some(due_at) = verdict.due_at {
                self.hint.due(due_at);
                self.give_word(due_at);
            }
            let mut request = request;
            for Run { whose, claimed, permit } in verdict.runs {
                let permit = permit.or_else(|| request.take_permit());
                self.run(whose, claimed, permit);
            }
            verdict.moved.iter().for_each(|moved| self.remember(moved));
            request.answer(reply);
        }
    }

    /// How a commit left an instance is remembered where the next request for it is likely to come to this process.
    fn remember(&self, moved: &Moved) {
        let Moved { whose, instance, has_timer, stamp, .. } = moved;
        let executes_here =
            || instance.newest.is_some_and(|newest| self.work.as_ref().is_some_and(|work| work.running().contains_key(&newest)));
        let is_worth_it = instance.status == Status::Running && (!instance.is_open || executes_here());
        let seen = stamp.map(|stamp| Seen { instance: Arc::clone(instance), has_timer: *has_timer, stamp });
        self.memories.put(whose, if is_worth_it { Memory::of(instance, seen) } else { None });
    }

    /// The database is away. Reports wait for it, for they must not be lost; callers are told once their patience ends.
    async fn put_back(&self, batch: Vec<Request>, error: &Arc<StoreError>) {
        let tries = batch.iter().map(|request| request.tries).max().unwrap_or(0);
        tracing::warn!(%error, tries, requests = batch.len(), "a commit failed and is tried again");
        tokio::time::sleep(AWAY.0.saturating_mul(1 << tries.min(8)).min(AWAY.1)).await;
        for request in batch {
            if request.is_patient() {
                self.queue.put(request.again());
            } else {
                request.answer(Err(Arc::clone(error).into()));
            }
        }
    }
}

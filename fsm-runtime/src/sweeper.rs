//! The sweeper: finds attempts of dead sessions and closes them as lost, each with its own request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::RequestKind;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::outcome::Outcome;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;
use fsm_store::error::StoreError;
use fsm_store::session_log::{self, Executing, ExecutingAttempt, LogRow};
use fsm_store::sessions::{self, OtherSession};
use tokio::time::Instant;
use uuid::Uuid;

use crate::committer::request::{self, Request};
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::longest;
use crate::guard;
use crate::preference::Turn;
use crate::running::{self, Running};

/// The maximum number of orphans that one run closes.
const AT_A_TIME: usize = 500;
/// The number of instances that one run scans for executing attempts that no log has.
const SCANNED: u32 = 1000;
/// The number of new log rows after which the log is shortened before the next run.
const LONG_LOG: i64 = 256;
/// The number of log rows in use from which on they are replaced by one row.
const MANY_ROWS: usize = 16;

/// The interval at which this process looks whether other workers of this machine still exist, and how long its log is.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// In a partition that this process does not prefer, a connection that was not used for this long is closed.
const RESTS_FOR: Duration = Duration::from_secs(1);
/// The time after a commit for which connections stay open there nevertheless, for the next one.
const USED_FOR: Duration = Duration::from_secs(10);

impl Engine {
    /// Sweeps at the start, three times in each lease duration, and at once when another worker of this machine is gone. In a partition that is not
    /// preferred and in which nothing runs here, it sweeps at the next look after that time, or after twice the time. Shortens the log of this
    /// session more often while it grows fast.
    pub(crate) async fn sweep_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        let pause = work.session.lease() / 3;
        loop {
            let (began, mut written) = (Instant::now(), session_log::last_number());
            let due = if work.running().is_empty() {
                work.preference.at_a_look(began + pause, Turn::Sweeper).min(began + pause * 2)
            } else {
                began + pause
            };
            // There may be more orphans than one run closes.
            while self.sweep().await.unwrap_or_else(|error| {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the search for lost attempts failed and is tried again");
                }
                0
            }) >= AT_A_TIME
            {}
            let neighbours = self.neighbours().await;
            // It always waits once: a session that cannot be ended must not make this loop busy.
            loop {
                tokio::time::sleep(BETWEEN_LOOKS.min(pause)).await;
                if Instant::now() >= due || neighbours.iter().any(|neighbour| work.session.is_gone(neighbour)) {
                    break;
                }
                if !work.preference.is_preferred() && !self.is_used() {
                    self.store.rest(RESTS_FOR);
                }
                let last = session_log::last_number();
                if last - written >= LONG_LOG {
                    if let Err(error) = self.compare_with_held().await
                        && !self.outage.reports(&error)
                    {
                        tracing::warn!(%error, "the log of this session could not be shortened and is tried again");
                    }
                    written = last;
                }
            }
        }
    }

    /// Returns true if this process works in the partition now, or has done so recently.
    fn is_used(&self) -> bool {
        let has_committed = self.last_commit.latest().is_some_and(|at| at.elapsed() < USED_FOR);
        has_committed || self.work.as_ref().is_some_and(|work| !work.running().is_empty())
    }

    /// The processes of other sessions that run. Those of other machines are never found to be gone.
    async fn neighbours(&self) -> Vec<ProcessIdentity> {
        let Some(work) = &self.work else { return Vec::new() };
        match self.other_sessions(work.session.id()).await {
            Ok(others) => others.into_iter().map(|other| other.process).collect(),
            Err(error) => {
                tracing::debug!(%error, "the other workers are not known; their leases decide");
                Vec::new()
            }
        }
    }

    async fn other_sessions(&self, me: SessionId) -> Result<Vec<OtherSession>, Error> {
        let others = {
            let mut reader = self.engine_reader().await?;
            sessions::others(&mut reader.conn(), me).await?
        };
        if let (Some(work), Some(_)) = (&self.work, self.partition) {
            let now = self.clock.now();
            work.preference.note(me, others.iter().filter(|other| work.session.is_peer(other, now)).map(|other| other.id));
        }
        Ok(others)
    }

    /// Closes orphans and returns their number. An orphan that cannot be closed does not affect the others.
    pub(crate) async fn sweep(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let now = self.clock.now();
        // Each part is tried, even if one before it failed.
        let compared = self.compare_with_held().await;
        let interrupted = self.cancel_interrupted().await;
        let ended = self.end_sessions(now).await;
        let is_in_time = work.session.may_sweep(now);
        // Before its grace period has passed, this process closes only the attempts of sessions that have no row any more.
        let swept = self.close_orphans(if is_in_time { now } else { Timestamp::MIN }).await;
        let deleted = if is_in_time { self.delete_expired(now).await } else { Ok(()) };
        let families = self.sweep_families().await.map(drop);
        interrupted.and(ended).and(deleted).and(families)?;
        Ok(compared? + swept?)
    }

    /// Ends the sessions that are over for certain. From then on their attempts belong to no session.
    async fn end_sessions(&self, now: Timestamp) -> Result<(), Error> {
        let Some(work) = &self.work else { return Ok(()) };
        let others = self.other_sessions(work.session.id()).await?;
        let mut all = Ok(());
        for other in others.iter().filter(|other| work.session.is_over(other, now)) {
            match self.end_session(other).await {
                Ok(true) => tracing::info!(session = %other.id, process = %other.process, "a worker is gone; its attempts are lost"),
                Ok(false) => {}
                // The others are ended in spite of it.
                Err(error) => all = Err(error),
            }
        }
        all
    }

    async fn end_session(&self, other: &OtherSession) -> Result<bool, Error> {
        let mut tx = self.store.begin().await?;
        let has_ended = sessions::end(&mut tx.conn(), other).await?;
        tx.commit().await?;
        Ok(has_ended)
    }

    async fn close_orphans(self: &Arc<Self>, now: Timestamp) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let failing = &work.failures.orphans;
        let again = failing.due(now, usize::MAX);
        let waiting: HashSet<_> = failing.waiting(now).into_iter().collect();
        let found = self.orphans(now).await?;
        let is_there: HashSet<_> =
            found.attempts.iter().map(|orphan| orphan.attempt.call).chain(found.unread.iter().map(|(_, call, _)| *call)).collect();
        again.into_iter().filter(|call| !is_there.contains(call)).for_each(|call| failing.passed(call));
        for (_, call, why) in found.unread.into_iter().filter(|(_, call, _)| !waiting.contains(call)) {
            self.cannot_close(call, None, &why.into());
        }
        let due = found.attempts.into_iter().filter(|orphan| !waiting.contains(&orphan.attempt.call));
        Ok(self.close_all(due.take(AT_A_TIME).collect(), Outcome::Lost).await)
    }

    /// Returns the attempts that dead sessions execute, of the machines that are served here: those in their logs, and those in the part of
    /// all instances that this run scans.
    async fn orphans(&self, now: Timestamp) -> Result<Executing, Error> {
        let Some(work) = &self.work else { return Ok(Executing::default()) };
        let mut all = Executing::default();
        let mut reader = self.engine_reader().await?;
        for session in session_log::dead(&mut reader.conn(), now).await? {
            let (_, found) = session_log::read(&mut reader.conn(), session).await?;
            all.attempts.extend(found.attempts);
            all.unread.extend(found.unread);
        }
        let after = *guard::lock(&work.scanned);
        let (found, end) = session_log::unlisted(&mut reader.conn(), after, SCANNED, now).await?;
        *guard::lock(&work.scanned) = end.unwrap_or(InstanceId(Uuid::nil()));
        let listed = all.instances();
        all.attempts.extend(found.attempts.into_iter().filter(|found| !listed.contains(&found.attempt.instance)));
        all.unread.extend(found.unread.into_iter().filter(|(instance, ..)| !listed.contains(instance)));
        all.attempts.retain(|orphan| work.served.iter().any(|served| served.machine == orphan.attempt.machine));
        Ok(all)
    }

    /// Deletes the log rows of dead sessions that list no executing attempt, and the dead sessions without a log.
    async fn delete_expired(&self, now: Timestamp) -> Result<(), Error> {
        let mut over = Vec::new();
        {
            let mut reader = self.engine_reader().await?;
            for session in session_log::dead(&mut reader.conn(), now).await? {
                let (log, found) = session_log::read(&mut reader.conn(), session).await?;
                let executing = found.instances();
                let rows = log.into_iter().filter(|row| !row.instances.iter().any(|instance| executing.contains(instance)));
                over.push((session, rows.collect::<Vec<_>>()));
            }
        }
        let mut tx = self.store.begin().await?;
        for (session, rows) in over {
            session_log::shorten(&mut tx.conn(), session, &rows, &[]).await?;
        }
        sessions::delete_expired(&mut tx.conn(), now).await?;
        Ok(tx.commit().await?)
    }

    fn cannot_close(&self, call: CallId, target: Option<&InstanceKey>, error: &Error) {
        let Some(work) = &self.work else { return };
        let again = work.failures.orphans.failed(call, self.clock.now(), longest(error));
        if again.is_logged() && !self.outage.reports(error) {
            let (machine, key) = target.map_or(("", ""), |target| (&*target.machine, &*target.key));
            tracing::warn!(machine, key, %call, tries = again.tries, %error, again_in = ?again.wait, "a lost attempt cannot be closed; the others are");
        }
    }

    /// Compares the attempts that the database assigns to this session with those that run here, and shortens the session's log. If an
    /// attempt runs here and is no longer assigned, an operator or a sweeper has closed it, and its verb is cancelled. If it is assigned and
    /// does not run, its commit succeeded and the answer was lost; it is released.
    async fn compare_with_held(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let session = work.session.id();
        let ran_before: Vec<_> = work.running().keys().copied().collect();
        let (log, held) = {
            let mut reader = self.engine_reader().await?;
            session_log::read(&mut reader.conn(), session).await?
        };
        let calls: HashSet<_> = held.attempts.iter().map(|held| (held.attempt.call, held.attempt.number)).collect();
        let unread: HashSet<_> = held.unread.iter().map(|(_, call, _)| *call).collect();
        for id in ran_before.iter().filter(|id| !calls.contains(id) && !unread.contains(&id.0)) {
            let cancel = work.running().get(id).map(Running::canceller);
            cancel.into_iter().for_each(running::cancel);
        }
        let executing = held.instances();
        let does_not_run = |held: &ExecutingAttempt| !work.running().contains_key(&(held.attempt.call, held.attempt.number));
        let mut idle: Vec<_> = held.attempts.into_iter().filter(does_not_run).collect();
        if !idle.is_empty() {
            // A commit in flight may be about to start its attempts. An attempt that does not run after these commits have ended never will.
            // Each operation of a commit has a limit, so this wait has one too.
            self.in_flight.finish_current().await;
            idle.retain(does_not_run);
        }
        for orphan in &idle {
            tracing::info!(machine = orphan.attempt.machine, key = orphan.key, call = %orphan.attempt.call, "an attempt that was held but not running was released");
        }
        let closed = self.close_all(idle, Outcome::Released).await;
        self.shorten_log(session, &log, &executing).await?;
        Ok(closed)
    }

    /// Deletes those of these log rows that list no executing attempt, and replaces many rows by one. `executing` are the instances in which
    /// the session executed an attempt when the rows had been read.
    async fn shorten_log(&self, session: SessionId, log: &[LogRow], executing: &HashSet<InstanceId>) -> Result<(), StoreError> {
        let is_used = |row: &&LogRow| row.instances.iter().any(|instance| executing.contains(instance));
        let (used, mut over): (Vec<&LogRow>, Vec<_>) = log.iter().partition(is_used);
        let mut moved: Vec<InstanceId> = Vec::new();
        if used.len() >= MANY_ROWS {
            moved = used.iter().flat_map(|row| &row.instances).filter(|instance| executing.contains(instance)).copied().collect();
            moved.sort();
            moved.dedup();
            over.extend(used);
        }
        if over.is_empty() {
            return Ok(());
        }
        let over: Vec<LogRow> = over.into_iter().cloned().collect();
        let mut tx = self.store.begin().await?;
        session_log::shorten(&mut tx.conn(), session, &over, &moved).await?;
        tx.commit().await
    }

    /// Closes the attempts and returns the number that succeeded. Each is a request of its own, and the committer groups them into batches.
    async fn close_all(self: &Arc<Self>, orphans: Vec<ExecutingAttempt>, outcome: Outcome) -> usize {
        let closing = orphans.into_iter().map(|orphan| self.close_orphan(orphan, outcome.clone()));
        futures_util::future::join_all(closing).await.into_iter().filter(|is_closed| *is_closed).count()
    }

    /// Closes one attempt and returns true if that succeeded. An attempt that cannot be closed does not affect the others (known bug 9).
    async fn close_orphan(self: &Arc<Self>, orphan: ExecutingAttempt, outcome: Outcome) -> bool {
        let target = InstanceKey::new(&orphan.attempt.machine, &orphan.key);
        let call = orphan.attempt.call;
        let report = request::report(Arc::new(orphan.attempt), outcome);
        let kind = RequestKind::Complete(Box::new(report));
        let closed = self.request(|reply| Request::new(target.clone(), kind, Some(reply)).of_loop()).await;
        let Some(work) = &self.work else { return closed.is_ok() };
        match closed {
            Ok(_) => work.failures.orphans.passed(call),
            Err(error) => {
                self.cannot_close(call, Some(&target), &error);
                return false;
            }
        }
        true
    }
}

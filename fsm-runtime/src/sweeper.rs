//! The sweeper: finds attempts of dead sessions and closes them as lost, each with its own request.

use std::collections::HashSet;
use std::sync::Arc;

use fsm_core::ids::CallId;
use fsm_core::outcome::Outcome;
use fsm_core::time::Timestamp;

use crate::committer::request::{InstanceKey, Report, Request, RequestKind};
use crate::engine::Engine;
use crate::error::Error;
use crate::failing::longest;
use crate::running::{self, Running};
use crate::store::claim::Except;
use crate::store::sessions::{self, Orphan};

/// The maximum number of orphans that one run closes.
const AT_A_TIME: u32 = 500;

impl Engine {
    /// Sweeps three times in each lease duration.
    pub(crate) async fn sweep_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        let pause = work.session.lease() / 3;
        loop {
            tokio::time::sleep(pause).await;
            // There may be more orphans than one run closes.
            while self.sweep().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "sweeping failed and is tried again");
                0
            }) >= AT_A_TIME as usize
            {}
        }
    }

    /// Closes orphans and returns their number. An orphan that cannot be closed does not affect the others.
    pub(crate) async fn sweep(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let now = self.clock.now();
        let compared = self.compare_with_held().await;
        if !work.session.may_sweep(now) {
            return compared;
        }
        let swept = self.close_orphans(now).await;
        self.delete_expired(now).await?;
        Ok(compared? + swept?)
    }

    async fn close_orphans(self: &Arc<Self>, now: Timestamp) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let failing = &work.failures.orphans;
        let again = failing.due(now, usize::MAX);
        let found = {
            let mut reader = self.looker().await?;
            sessions::orphans(&mut reader.conn(), &work.served, now, AT_A_TIME, &Except::of(failing.waiting(now), [])).await?
        };
        let is_there: HashSet<_> =
            found.orphans.iter().map(|orphan| orphan.attempt.call).chain(found.unread.iter().map(|(call, _)| *call)).collect();
        again.into_iter().filter(|call| !is_there.contains(call)).for_each(|call| failing.passed(call));
        for (call, why) in found.unread {
            self.cannot_close(call, None, &why.into());
        }
        Ok(self.close_all(found.orphans, Outcome::Lost).await)
    }

    async fn delete_expired(&self, now: Timestamp) -> Result<(), Error> {
        let mut tx = self.store.begin().await?;
        sessions::delete_expired(&mut tx.conn(), now).await?;
        Ok(tx.commit().await?)
    }

    fn cannot_close(&self, call: CallId, target: Option<&InstanceKey>, error: &Error) {
        let Some(work) = &self.work else { return };
        let again = work.failures.orphans.failed(call, self.clock.now(), longest(error));
        if again.is_told() {
            let (machine, key) = target.map_or(("", ""), |target| (&*target.machine, &*target.key));
            tracing::warn!(machine, key, %call, tries = again.tries, %error, again_in = ?again.wait, "a lost attempt cannot be closed; the others are");
        }
    }

    /// Compares the attempts that the database assigns to this session with those that run here. If an attempt runs here and is no longer
    /// assigned, an operator or a sweeper has closed it, and its verb is cancelled. If it is assigned and does not run, its claim was
    /// committed and the answer was lost; it is released.
    async fn compare_with_held(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let ran_before: Vec<_> = work.running().keys().copied().collect();
        let held = {
            let mut reader = self.looker().await?;
            sessions::held(&mut reader.conn(), work.session.id()).await?
        };
        let is_unread = |call: CallId| held.unread.iter().any(|(unread, _)| *unread == call);
        let is_held =
            |id: &(CallId, u32)| is_unread(id.0) || held.orphans.iter().any(|held| (held.attempt.call, held.attempt.number) == *id);
        for id in ran_before.iter().filter(|id| !is_held(id)) {
            let cancel = work.running().get(id).map(Running::canceller);
            cancel.into_iter().for_each(running::cancel);
        }
        let does_not_run = |held: &Orphan| !work.running().contains_key(&(held.attempt.call, held.attempt.number));
        let mut idle: Vec<_> = held.orphans.into_iter().filter(does_not_run).collect();
        if idle.is_empty() {
            return Ok(0);
        }
        // A commit in flight may be about to start its attempts. An attempt that does not run after these commits have ended never will.
        // Each operation of a commit has a limit, so this wait has one too.
        self.in_flight.finish_current().await;
        idle.retain(does_not_run);
        for orphan in &idle {
            tracing::info!(machine = orphan.machine, key = orphan.key, call = %orphan.attempt.call, "held but not running: given back");
        }
        Ok(self.close_all(idle, Outcome::Released).await)
    }

    /// Closes the attempts and returns the number that succeeded. Each is a request of its own, and the committer groups them into batches.
    async fn close_all(self: &Arc<Self>, orphans: Vec<Orphan>, outcome: Outcome) -> usize {
        let closing = orphans.into_iter().map(|orphan| self.close_orphan(orphan, outcome.clone()));
        futures_util::future::join_all(closing).await.into_iter().filter(|is_closed| *is_closed).count()
    }

    /// Closes one attempt and returns true if that succeeded. An attempt that cannot be closed does not affect the others (known bug 9).
    async fn close_orphan(self: &Arc<Self>, orphan: Orphan, outcome: Outcome) -> bool {
        let target = InstanceKey::new(&orphan.machine, &orphan.key);
        let call = orphan.attempt.call;
        let report = Report::new(Arc::new(orphan.attempt), outcome);
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

//! Finds attempts whose session died and settles them as lost, each on its own.

use std::sync::Arc;

use fsm_core::ids::CallId;
use fsm_core::outcome::Outcome;

use crate::committer::queue::{Report, Request, What, Whose};
use crate::engine::Engine;
use crate::error::Error;
use crate::store::sessions::{self, Orphan};

/// The most orphans that are settled in one look.
const AT_A_TIME: u32 = 500;

impl Engine {
    /// Looks a few times in each lease.
    pub(crate) async fn sweep_for_ever(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        let pause = work.session.lease() / 3;
        loop {
            tokio::time::sleep(pause).await;
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "sweeping failed and is tried again");
            }
        }
    }

    /// Settles what died. Gives back how many attempts it found.
    pub(crate) async fn sweep(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let now = self.clock.now();
        let mut found = self.compare_with_held().await?;
        if !work.session.may_sweep(now) {
            return Ok(found);
        }
        let orphans = {
            let mut reader = self.store.reader().await?;
            sessions::orphans(&mut reader.conn(), &work.served, now, AT_A_TIME).await?
        };
        found += orphans.len();
        for orphan in orphans {
            self.settle_orphan(orphan, Outcome::Lost).await;
        }
        let mut tx = self.store.begin().await?;
        sessions::bury(&mut tx.conn(), now).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Compares what this session holds with what it runs. What it runs and no longer holds was closed elsewhere, by an
    /// operator or a sweeper: the verb is told. What it holds and does not run never began, for its commit succeeded and the
    /// answer was lost: it is given back.
    async fn compare_with_held(self: &Arc<Self>) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        let ran_before: Vec<_> = work.running().keys().copied().collect();
        let held = {
            let mut reader = self.store.reader().await?;
            sessions::held(&mut reader.conn(), work.session.id()).await?
        };
        let is_held = |id: &(CallId, u32)| held.iter().any(|held| (held.attempt.call, held.attempt.number) == *id);
        for id in ran_before.iter().filter(|id| !is_held(id)) {
            if let Some(running) = work.running().get(id) {
                running.cancel();
            }
        }
        let is_stray = |held: &Orphan| !work.running().contains_key(&(held.attempt.call, held.attempt.number));
        let mut strays: Vec<_> = held.into_iter().filter(is_stray).collect();
        if strays.is_empty() {
            return Ok(0);
        }
        // A commit under way may be about to start what it wrote: once it is done, what still does not run never will.
        drop(self.committing.write().await);
        strays.retain(is_stray);
        let found = strays.len();
        for stray in strays {
            tracing::info!(machine = stray.machine, key = stray.key, call = %stray.attempt.call, "held but not running: given back");
            self.settle_orphan(stray, Outcome::Released).await;
        }
        Ok(found)
    }

    /// One that cannot be settled does not keep the others (known bug 9).
    async fn settle_orphan(self: &Arc<Self>, orphan: Orphan, outcome: Outcome) {
        let whose = Whose::new(&orphan.machine, &orphan.key);
        let report = Report::new(orphan.attempt, outcome);
        let what = What::Settle(Box::new(report));
        if let Err(error) = self.request(|reply| Request::new(whose.clone(), what, Some(reply))).await {
            tracing::error!(machine = &*whose.machine, key = &*whose.key, %error, "a lost attempt could not be settled");
        }
    }
}

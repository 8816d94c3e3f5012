//! The finder: fires due timers and claims due attempts. Correctness depends on polling alone; wake-ups only reduce the delay.

mod claiming;
mod fairly;
mod firing;
mod limited;
mod limited_by_value;
mod permitted;

use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;
use fsm_store::claim;
use fsm_store::error::{Class, StoreError};

use crate::committer::retry::{backoff, is_worth_a_line};
use crate::engine::Engine;
use crate::error::Error;

/// The interval at which a process with an uncertain lease checks it again.
const UNCERTAIN: Duration = Duration::from_secs(1);
/// The interval of the check for room in the committer's queue.
const ROOM_CHECK: Duration = Duration::from_millis(1);

impl Engine {
    /// Scans when something becomes due, and at least at every poll interval.
    pub(crate) async fn find_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        let (mut turn, mut failures) = (0, 0);
        loop {
            // Without a free slot no scan is useful. This wait has no limit; the end of an attempt frees a slot.
            let Ok(slot) = work.slots.acquire().await else { return };
            drop(slot);
            if !self.may_start() {
                return;
            }
            // This wait has no limit: due work stays in the database until the committer has room for it.
            while self.queue.wanted() == 0 {
                tokio::time::sleep(ROOM_CHECK).await;
            }
            if !self.is_to_look().await {
                self.wait_until_due().await;
                continue;
            }
            self.wake_up.take();
            let found = match self.find_all(turn).await {
                Ok(found) => found,
                Err(error) => {
                    if !self.outage.reports(&error) && is_worth_a_line(failures) {
                        tracing::warn!(%error, failures, "looking for due calls failed, and is tried again");
                    }
                    tokio::time::sleep(backoff(Class::Unavailable, failures)).await;
                    failures = failures.saturating_add(1);
                    continue;
                }
            };
            self.outage.succeeded();
            failures = 0;
            turn += 1;
            if found == 0 {
                self.wait_until_due().await;
            }
        }
    }

    /// Returns true if due work is looked for now. In a partition that this process does not prefer, it is if this process made work due, or if
    /// work is overdue.
    async fn is_to_look(&self) -> bool {
        let Some(work) = &self.work else { return false };
        if work.preference.is_preferred() || self.wake_up.earliest() <= self.clock.now() {
            return true;
        }
        work.preference.look();
        match self.next_due().await {
            Ok(None) => false,
            Ok(Some(next)) => {
                let (overdue_at, now) = (next + work.preference.overdue_after(), self.clock.now());
                if overdue_at > now {
                    work.preference.look_in(overdue_at.since(now));
                }
                overdue_at <= now
            }
            // The look reports the error.
            Err(_) => true,
        }
    }

    async fn wait_until_due(&self) {
        let Some(work) = &self.work else { return };
        let poll = work.preference.poll_for_work().max(ROOM_CHECK);
        // Without a certain session nothing can be claimed, so due work does not shorten the wait.
        if self.session().is_none() {
            return tokio::time::sleep(poll.min(UNCERTAIN)).await;
        }
        let stored = match work.preference.is_preferred() {
            true => self.next_due().await,
            false => Ok(None),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "the next due moment is not known; the next look is at the poll interval");
                }
                None
            }
        };
        loop {
            let next = stored.unwrap_or(Timestamp::MAX).min(self.wake_up.earliest());
            let wait = self.clock.until(next).unwrap_or(poll).clamp(ROOM_CHECK, poll);
            tokio::select! {
                () = tokio::time::sleep(wait) => return,
                () = self.wake_up.notified() => {}
                () = work.preference.changed() => return,
            }
        }
    }

    /// The time at which the next attempt or timer becomes due, or a failed one is retried.
    pub(crate) async fn next_due(&self) -> Result<Option<Timestamp>, Error> {
        let Some(work) = &self.work else { return Ok(None) };
        let mut reader = self.engine_reader().await?;
        let mut next: Option<Timestamp> = None;
        for (served, failing) in work.served.iter().zip(&work.failures.of) {
            let due = claim::next_due(&mut reader.conn(), served, &failing.except()).await?;
            next = [next, due, failing.next()].into_iter().flatten().min();
        }
        let limited = self.next_limited(&mut reader.conn()).await?;
        Ok([next, limited].into_iter().flatten().min())
    }

    /// Fires due timers and claims due attempts. The scan starts with machine number `turn`, so that none of them starves the others.
    /// Returns the number of timers and attempts found.
    #[cfg(feature = "testing")]
    pub(crate) async fn find_due(self: &Arc<Self>, turn: usize) -> Result<usize, Error> {
        if !self.may_start() {
            return Ok(0);
        }
        let most = self.queue.wanted().max(1);
        let timers = self.look_for_timers(most).await?;
        Ok(self.fire_all(timers).await + self.claim_all(turn, most).await?)
    }

    /// Like `find_due`, but timers are fired in a task of their own, so that a slow one delays neither the claims nor the next scan.
    async fn find_all(self: &Arc<Self>, turn: usize) -> Result<usize, Error> {
        let most = self.queue.wanted().max(1);
        let timers = self.look_for_timers(most).await;
        let found = timers.as_ref().map_or(0, Vec::len);
        let looked = timers.map(|timers| {
            if !timers.is_empty() {
                let engine = Arc::clone(self);
                self.spawn(async move {
                    engine.fire_all(timers).await;
                });
            }
        });
        let claimed = self.claim_all(turn, most).await?;
        looked.map(|()| found + claimed)
    }

    /// Claims due attempts with and without a limit. In turns, either kind gets the free slots first.
    async fn claim_all(self: &Arc<Self>, turn: usize, most: usize) -> Result<usize, Error> {
        let (one, other) = match turn % 2 {
            0 => (self.claim_limited(most).await, self.claim_due(turn, most).await),
            _ => (self.claim_due(turn, most).await, self.claim_limited(most).await),
        };
        match (one, other) {
            (Ok(one), Ok(other)) => Ok(one + other),
            // What was claimed runs; the error returns with the next scan.
            (Ok(found), Err(error)) | (Err(error), Ok(found)) if found > 0 => {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "claiming due attempts failed");
                }
                Ok(found)
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

/// Returns true if the database answered, even with an error: statements for other machines may succeed. Without a connection none can.
fn has_answered(error: &StoreError) -> bool {
    matches!(error, StoreError::Database(sqlx::Error::Database(_)) | StoreError::Corrupt { .. })
}

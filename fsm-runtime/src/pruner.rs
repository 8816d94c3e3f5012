//! Deletes what ended longer ago than the retention, and of what lives the past that is as old, a little at a time.

mod past;

use std::sync::Arc;
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::engine::Engine;
use crate::error::Error;
use crate::store::claim::Served;
use crate::store::prune;
pub(crate) use past::Place;

/// The most instances that are deleted in one transaction, with all that belongs to them.
const AT_A_TIME: u32 = 100;
/// The most memoised effects.
const ONCE_AT_A_TIME: u32 = 500;
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);
/// Between two transactions of a look, so that others get their turn.
const BREATH: Duration = Duration::from_millis(20);

impl Engine {
    /// Looks once a minute.
    pub(crate) async fn prune_for_ever(self: Arc<Self>) {
        let mut place = Place::default();
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.prune(&mut place).await {
                tracing::warn!(%error, "deleting what is older than the retention failed and is tried again");
            }
        }
    }

    /// Deletes what the retention does not keep, of live instances beginning at `place` and not all of it at once. Gives back how much was
    /// deleted.
    pub(crate) async fn prune(&self, place: &mut Place) -> Result<usize, Error> {
        let Some((work, retention)) = self.work.as_ref().and_then(|work| Some((work, work.retention?))) else { return Ok(0) };
        let cutoff = self.clock.now() - retention;
        let mut pruned = 0;
        for served in &work.served {
            let mut after = InstanceId(Uuid::nil());
            while let Some((last, count)) = self.prune_instances(served, cutoff, after).await? {
                pruned += count;
                after = last;
                if count < AT_A_TIME as usize {
                    break;
                }
                tokio::time::sleep(BREATH).await;
            }
            while self.prune_once(served, cutoff).await? == u64::from(ONCE_AT_A_TIME) {
                tokio::time::sleep(BREATH).await;
            }
        }
        Ok(pruned + self.prune_past(place, &work.served, cutoff).await?)
    }

    /// The last of those that were deleted, and how many.
    async fn prune_instances(&self, served: &Served, cutoff: Timestamp, after: InstanceId) -> Result<Option<(InstanceId, usize)>, Error> {
        let mut tx = self.store.begin().await?;
        let ended = prune::ended(&mut tx.conn(), &served.machine, cutoff, after, AT_A_TIME).await?;
        let Some(last) = ended.last() else {
            tx.rollback().await?;
            return Ok(None);
        };
        prune::delete(&mut tx.conn(), &ended).await?;
        tx.commit().await?;
        tracing::debug!(machine = served.machine, instances = ended.len(), "deleted what ended before the retention");
        Ok(Some((*last, ended.len())))
    }

    async fn prune_once(&self, served: &Served, cutoff: Timestamp) -> Result<u64, Error> {
        let mut tx = self.store.begin().await?;
        let pruned = prune::closed_once(&mut tx.conn(), &served.machine, cutoff, ONCE_AT_A_TIME).await?;
        tx.commit().await?;
        Ok(pruned)
    }
}

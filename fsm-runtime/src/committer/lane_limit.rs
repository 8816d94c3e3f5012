//! The rule for starting a commit beside others. Concurrent commits hide the latency of the disk, but cost more CPU time than one larger
//! commit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_store::open::Store;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::guard;

/// Commits are crowded if one usually takes this many times as long as the quickest one did. They then wait for each other.
const CROWDED: u64 = 3;
/// The number of requests that have to wait before another lane starts a commit, if commits are crowded.
const SMALLEST_BATCH: usize = 32;
/// The number of commits that the partitions in one database have in flight together, if commits are crowded. A partition alone has fewer
/// lanes. Eight partitions reach 99 % of the rate without partitions with 2,000 callers, and 68 % with 256. With 24 commits in flight they
/// reached 67 and 54 %.
const SLOTS: usize = 5;
/// A commit that takes longer than this may hang. Other requests no longer wait for it to end in order to form a larger batch.
pub(super) const TOO_LONG: Duration = Duration::from_millis(20);
/// The smoothing factor of the usual time: each commit contributes 1/8 of its time.
const INERTIA: u64 = 8;

/// The limits of a process, one for each database that has partitions of it.
#[derive(Debug, Default)]
pub(crate) struct LaneLimits(Mutex<HashMap<Arc<str>, Arc<LaneLimit>>>);

impl LaneLimits {
    /// The limit of the database in which the store is now: a partition can move.
    pub(crate) fn of(&self, store: &Store) -> Arc<LaneLimit> {
        Arc::clone(guard::lock(&self.0).entry(store.database()).or_default())
    }
}

/// The times that commits to a database take in this process.
#[derive(Debug)]
pub(crate) struct LaneLimit {
    slots: Semaphore,
    quickest_us: AtomicU64,
    usual_us: AtomicU64,
}

/// The permission to have a commit in flight.
#[derive(Debug)]
pub(crate) struct CommitSlot<'l> {
    /// `None` for a commit beside as many others as there are slots.
    _permit: Option<SemaphorePermit<'l>>,
}

impl Default for LaneLimit {
    /// A limit without measurements.
    fn default() -> LaneLimit {
        LaneLimit { slots: Semaphore::new(SLOTS), quickest_us: AtomicU64::new(u64::MAX), usual_us: AtomicU64::new(0) }
    }
}

impl LaneLimit {
    /// Records the time of a commit.
    pub(crate) fn record(&self, time: Duration) {
        // The time is capped, so that a commit that hung has little influence.
        let time_us = u64::try_from(time.min(TOO_LONG).as_micros()).unwrap_or(u64::MAX).max(1);
        self.quickest_us.fetch_min(time_us, Ordering::Relaxed);
        let usual_us = self.usual_us.load(Ordering::Relaxed);
        // A concurrent lane may overwrite this value. The error is small, and the next commit corrects it.
        self.usual_us.store(usual_us - usual_us / INERTIA + time_us / INERTIA, Ordering::Relaxed);
    }

    /// The number of requests that have to wait before another commit of the same queue begins beside one in flight.
    pub(super) fn smallest_batch(&self) -> usize {
        if self.is_crowded() { SMALLEST_BATCH } else { 1 }
    }

    /// A slot for a commit that may begin now; `None` if it has to wait for [one](LaneLimit::slot).
    pub(super) fn free_slot(&self) -> Option<CommitSlot<'_>> {
        match self.slots.try_acquire() {
            Ok(permit) => Some(CommitSlot { _permit: Some(permit) }),
            Err(_) => (!self.is_crowded()).then_some(CommitSlot { _permit: None }),
        }
    }

    /// Waits for a slot, first come first served. It does not wait for commits that have taken too long, because they may hang.
    pub(super) async fn slot(&self) -> CommitSlot<'_> {
        let permit = tokio::time::timeout(TOO_LONG, self.slots.acquire()).await;
        CommitSlot { _permit: permit.ok().and_then(Result::ok) }
    }

    fn is_crowded(&self) -> bool {
        let quickest_us = self.quickest_us.load(Ordering::Relaxed);
        self.usual_us.load(Ordering::Relaxed) > quickest_us.saturating_mul(CROWDED)
    }
}

#[cfg(test)]
impl LaneLimit {
    /// A limit on which commits are crowded.
    pub(super) fn crowded() -> LaneLimit {
        let lane_limit = LaneLimit::default();
        lane_limit.record(Duration::from_millis(1));
        (0..100).for_each(|_| lane_limit.record(Duration::from_millis(10)));
        lane_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_disk_that_is_far_crowds_nobody() {
        let lane_limit = LaneLimit::default();
        assert_eq!(lane_limit.smallest_batch(), 1);
        (0..100).for_each(|n| lane_limit.record(5 * MS + n % 3 * MS));
        assert_eq!(lane_limit.smallest_batch(), 1);
    }

    #[test]
    fn commits_that_keep_each_other_waiting_become_fewer_and_then_more_again() {
        let lane_limit = LaneLimit::crowded();
        assert_eq!(lane_limit.smallest_batch(), SMALLEST_BATCH);
        (0..100).for_each(|_| lane_limit.record(2 * MS));
        assert_eq!(lane_limit.smallest_batch(), 1);
    }

    #[tokio::test]
    async fn crowded_partitions_share_the_slots_and_others_do_not_wait() {
        let lane_limit = LaneLimit::crowded();
        let mut slots: Vec<_> = (0..SLOTS).filter_map(|_| lane_limit.free_slot()).collect();
        assert_eq!(slots.len(), SLOTS);
        assert!(lane_limit.free_slot().is_none(), "all slots are taken");
        let (next, ()) = tokio::join!(lane_limit.slot(), async { drop(slots.pop()) });
        assert!(next._permit.is_some(), "it has the slot of the commit that ended");
        let begun = std::time::Instant::now();
        assert!(lane_limit.slot().await._permit.is_none(), "the commits in flight hang");
        assert!(begun.elapsed() >= TOO_LONG);
        (0..100).for_each(|_| lane_limit.record(2 * MS));
        assert!(lane_limit.free_slot().is_some_and(|slot| slot._permit.is_none()), "commits are not crowded any more");
    }
}

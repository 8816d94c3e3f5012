//! The rule for starting a commit beside another one. Concurrent commits hide the latency of the disk, but cost more CPU time than one
//! larger commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::TOO_LONG;

/// Commits are crowded if one usually takes this many times as long as the quickest one did. They then wait for each other.
const CROWDED: u64 = 3;
/// The number of requests that have to wait before another lane starts a commit, if commits are crowded.
const SMALLEST_BATCH: usize = 32;
/// The smoothing factor of the usual time: each commit contributes 1/8 of its time.
const INERTIA: u64 = 8;

/// The times that commits take in this process.
#[derive(Debug)]
pub(crate) struct LaneLimit {
    lanes: usize,
    quickest_us: AtomicU64,
    usual_us: AtomicU64,
}

impl LaneLimit {
    /// A limit without measurements.
    pub(crate) fn of(lanes: usize) -> LaneLimit {
        LaneLimit { lanes, quickest_us: AtomicU64::new(u64::MAX), usual_us: AtomicU64::new(0) }
    }

    /// Records the time of a commit.
    pub(crate) fn record(&self, time: Duration) {
        // The time is capped, so that a commit that hung has little influence.
        let time_us = u64::try_from(time.min(TOO_LONG).as_micros()).unwrap_or(u64::MAX).max(1);
        self.quickest_us.fetch_min(time_us, Ordering::Relaxed);
        let usual_us = self.usual_us.load(Ordering::Relaxed);
        // A concurrent lane may overwrite this value. The error is small, and the next commit corrects it.
        self.usual_us.store(usual_us - usual_us / INERTIA + time_us / INERTIA, Ordering::Relaxed);
    }

    /// The number of requests that have to wait before another commit begins beside one in flight.
    pub(crate) fn smallest_batch(&self) -> usize {
        let quickest_us = self.quickest_us.load(Ordering::Relaxed);
        let is_crowded = self.usual_us.load(Ordering::Relaxed) > quickest_us.saturating_mul(CROWDED);
        // A single lane never commits beside another. Only the consequences of its previous batch may still be in progress.
        if is_crowded && self.lanes > 1 { SMALLEST_BATCH } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_disk_that_is_far_crowds_nobody() {
        let lane_limit = LaneLimit::of(3);
        assert_eq!(lane_limit.smallest_batch(), 1);
        (0..100).for_each(|n| lane_limit.record(5 * MS + n % 3 * MS));
        assert_eq!(lane_limit.smallest_batch(), 1);
    }

    #[test]
    fn commits_that_keep_each_other_waiting_become_fewer_and_then_more_again() {
        let lane_limit = LaneLimit::of(3);
        lane_limit.record(MS);
        (0..100).for_each(|_| lane_limit.record(10 * MS));
        assert_eq!(lane_limit.smallest_batch(), SMALLEST_BATCH);
        (0..100).for_each(|_| lane_limit.record(2 * MS));
        assert_eq!(lane_limit.smallest_batch(), 1);
    }
}

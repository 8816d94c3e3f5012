//! When another lane is worth it: commits side by side hide how far the disk is, and cost processors more than one larger commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::TOO_LONG;

/// Commits are crowded when one takes so many times as long as the quickest did: what they wait for then is each other.
const CROWDED: u64 = 3;
/// How many requests have to wait for another lane to join in where commits are crowded.
const ENOUGH: usize = 32;
/// Of the time that a commit takes, so much of what is believed of the next one is what was believed before.
const INERTIA: u64 = 8;

/// How long commits take in this process.
#[derive(Debug)]
pub(crate) struct LaneLimit {
    lanes: usize,
    quickest_us: AtomicU64,
    usual_us: AtomicU64,
}

impl LaneLimit {
    /// Nothing is known yet.
    pub(crate) fn of(lanes: usize) -> LaneLimit {
        LaneLimit { lanes, quickest_us: AtomicU64::new(u64::MAX), usual_us: AtomicU64::new(0) }
    }

    /// A commit took so long.
    pub(crate) fn took(&self, time: Duration) {
        // One that hung says nothing of the others.
        let time_us = u64::try_from(time.min(TOO_LONG).as_micros()).unwrap_or(u64::MAX).max(1);
        self.quickest_us.fetch_min(time_us, Ordering::Relaxed);
        let usual_us = self.usual_us.load(Ordering::Relaxed);
        // Of several lanes one may overwrite what another has just learned; the next commit teaches it again.
        self.usual_us.store(usual_us - usual_us / INERTIA + time_us / INERTIA, Ordering::Relaxed);
    }

    /// How many requests have to wait for another commit to begin beside one that is under way.
    pub(crate) fn enough(&self) -> usize {
        let quickest_us = self.quickest_us.load(Ordering::Relaxed);
        let is_crowded = self.usual_us.load(Ordering::Relaxed) > quickest_us.saturating_mul(CROWDED);
        // A single lane never commits beside another: what is under way with it is only still to be told.
        if is_crowded && self.lanes > 1 { ENOUGH } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_disk_that_is_far_crowds_nobody() {
        let lane_limit = LaneLimit::of(3);
        assert_eq!(lane_limit.enough(), 1);
        (0..100).for_each(|n| lane_limit.took(5 * MS + n % 3 * MS));
        assert_eq!(lane_limit.enough(), 1);
    }

    #[test]
    fn commits_that_keep_each_other_waiting_become_fewer_and_then_more_again() {
        let lane_limit = LaneLimit::of(3);
        lane_limit.took(MS);
        (0..100).for_each(|_| lane_limit.took(10 * MS));
        assert_eq!(lane_limit.enough(), ENOUGH);
        (0..100).for_each(|_| lane_limit.took(2 * MS));
        assert_eq!(lane_limit.enough(), 1);
    }
}

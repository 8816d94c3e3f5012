//! The share of each priority in the slots of this process.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fsm_core::priority::{Priority, kept};

use crate::guard;
use crate::store::claim::{Claims, Places};

/// The attempts that this process has claimed. They say which places of the next claim are kept for calls of a lower priority.
#[derive(Debug, Default)]
pub(crate) struct PriorityShares {
    /// For each machine, in the order of `served`.
    machines: Vec<Share>,
    /// For each limit.
    limits: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Share {
    claimed: AtomicU64,
    /// The last claim filled its places with high calls, or a send of this process left one waiting.
    has_high: AtomicBool,
}

impl PriorityShares {
    /// No attempts of so many machines.
    pub(crate) fn of(machines: usize) -> PriorityShares {
        PriorityShares { machines: (0..machines).map(|_| Share::default()).collect(), limits: Mutex::default() }
    }

    /// The places of the next claim of this machine.
    pub(crate) fn places(&self, machine: usize, most: u32) -> Places {
        let claimed = self.machines.get(machine).map_or(0, |share| share.claimed.load(Ordering::Relaxed));
        Places { most, kept: kept(claimed, most) }
    }

    /// Notes what a claim of this machine got.
    pub(crate) fn note(&self, machine: usize, places: Places, claims: &Claims) {
        let Some(share) = self.machines.get(machine) else { return };
        share.claimed.fetch_add(u64::from(claims.count()), Ordering::Relaxed);
        let is_full = claims.count() == places.most;
        let has_high = is_full && claims.claimed.iter().any(|claimed| claimed.attempt.priority == Priority::High);
        share.has_high.store(has_high, Ordering::Relaxed);
    }

    /// The number of attempts that were claimed under this limit.
    pub(crate) fn under(&self, limit: &str) -> u64 {
        guard::lock(&self.limits).get(limit).copied().unwrap_or(0)
    }

    /// Notes that so many attempts were claimed under this limit.
    pub(crate) fn note_under(&self, limit: &str, claimed: usize) {
        if claimed > 0 {
            *guard::lock(&self.limits).entry(limit.to_owned()).or_default() += claimed as u64;
        }
    }

    /// Notes that a high call was written and waits for a slot.
    pub(crate) fn note_high(&self, machine: usize) {
        if let Some(share) = self.machines.get(machine) {
            share.has_high.store(true, Ordering::Relaxed);
        }
    }

    /// True if a new call of this priority may take a free slot at once. It does not pass calls of a higher priority that are known to wait.
    pub(crate) fn admits(&self, priority: Priority) -> bool {
        match priority {
            Priority::High => true,
            Priority::Normal => !self.machines.iter().any(|share| share.has_high.load(Ordering::Relaxed)),
            Priority::Low => false,
        }
    }
}

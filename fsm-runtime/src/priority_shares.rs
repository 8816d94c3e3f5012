//! The shares in the slots of this process: of each priority, and of the values of a field.

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
    /// For each limit by value, the bucket from which the next claim looks.
    first_buckets: Mutex<HashMap<String, String>>,
}

#[derive(Debug, Default)]
struct Share {
    machine: String,
    is_fair: bool,
    claimed: AtomicU64,
    /// High calls are known to wait: the last claim filled its places with them, or a commit of this process left one waiting. For a machine with
    /// `fair_by`, calls of any priority.
    has_waiting: AtomicBool,
    /// The value from which the next fair claim reads.
    first_value: Mutex<String>,
}

impl PriorityShares {
    /// No attempts of these machines, each with whether it has `fair_by`.
    pub(crate) fn of(machines: impl Iterator<Item = (String, bool)>) -> PriorityShares {
        let machines = machines.map(|(machine, is_fair)| Share { machine, is_fair, ..Share::default() });
        PriorityShares { machines: machines.collect(), limits: Mutex::default(), first_buckets: Mutex::default() }
    }

    /// True for a machine with `fair_by`.
    pub(crate) fn is_fair(&self, machine: usize) -> bool {
        self.machines.get(machine).is_some_and(|share| share.is_fair)
    }

    /// The value from which a fair claim of this machine reads.
    pub(crate) fn first_value(&self, machine: usize) -> String {
        self.machines.get(machine).map(|share| guard::lock(&share.first_value).clone()).unwrap_or_default()
    }

    /// Sets the value from which the next fair claim reads.
    pub(crate) fn set_first_value(&self, machine: usize, value: String) {
        if let Some(share) = self.machines.get(machine) {
            *guard::lock(&share.first_value) = value;
        }
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
        let has_high = || claims.claimed.iter().any(|claimed| claimed.attempt.priority == Priority::High);
        share.has_waiting.store(is_full && (share.is_fair || has_high()), Ordering::Relaxed);
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

    /// The bucket from which the next claim under this limit looks; `None` for the first one.
    pub(crate) fn first_bucket(&self, limit: &str) -> Option<String> {
        guard::lock(&self.first_buckets).get(limit).cloned()
    }

    /// Sets the bucket from which the next claim under this limit looks.
    pub(crate) fn set_first_bucket(&self, limit: &str, bucket: Option<String>) {
        let mut buckets = guard::lock(&self.first_buckets);
        match bucket {
            Some(bucket) => buckets.insert(limit.to_owned(), bucket),
            None => buckets.remove(limit),
        };
    }

    /// Notes that a call of this machine was written and waits for a slot.
    pub(crate) fn note_waiting(&self, machine: &str, priority: Priority) {
        let share = self.machines.iter().find(|share| share.machine == machine);
        if let Some(share) = share.filter(|share| share.is_fair || priority == Priority::High) {
            share.has_waiting.store(true, Ordering::Relaxed);
        }
    }

    /// True if a new call may take a free slot at once. It passes no calls of a higher priority that are known to wait, and none of its own machine if
    /// that has `fair_by`.
    pub(crate) fn admits(&self, machine: &str, priority: Priority) -> bool {
        let passes = |share: &Share| match share.is_fair && share.machine == machine {
            true => share.has_waiting.load(Ordering::Relaxed),
            false => priority == Priority::Normal && !share.is_fair && share.has_waiting.load(Ordering::Relaxed),
        };
        priority != Priority::Low && !self.machines.iter().any(passes)
    }
}

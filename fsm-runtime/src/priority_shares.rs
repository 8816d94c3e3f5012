//! The shares in the slots of this process: of each priority, and of the values of a field.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fsm_core::priority::{Priority, kept};
use fsm_core::time::Timestamp;
use fsm_store::claim::{Claims, Places};

use crate::guard;

/// Of so many claims, one reads all priorities, although this process has seen none.
const CLAIMS: u64 = 16;
/// The maximum time between two such claims.
const CLAIM_EVERY: Duration = Duration::from_millis(50);

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
    /// The attempts of claims that read all priorities, or all values.
    claimed: AtomicU64,
    /// High calls are known to wait: the last claim filled its places with them, or a commit of this process left one waiting. For a machine with
    /// `fair_by`, calls of any priority.
    has_waiting: AtomicBool,
    /// A call of this machine with another priority than a normal one was seen.
    has_priorities: AtomicBool,
    /// The last claim got something. An idle process reads all priorities.
    is_busy: AtomicBool,
    /// The claims since the last one that read all priorities, and its time in microseconds.
    normal_claims: AtomicU64,
    all_read_at: AtomicI64,
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

    /// True if the next claim of this machine reads normal calls only: no call with another priority was seen, and all priorities were read a short
    /// time and few claims ago. A high call of another process is claimed by the first claim that reads all priorities, a low one by one of eight
    /// such claims of one place.
    pub(crate) fn reads_normal_only(&self, machine: usize, now: Timestamp) -> bool {
        let Some(share) = self.machines.get(machine) else { return false };
        let is_recent = now.as_micros().saturating_sub(share.all_read_at.load(Ordering::Relaxed)) < CLAIM_EVERY.as_micros() as i64;
        let has_read = share.normal_claims.fetch_add(1, Ordering::Relaxed) + 1 < CLAIMS;
        let is_plain = !share.is_fair && !share.has_priorities.load(Ordering::Relaxed) && share.is_busy.load(Ordering::Relaxed);
        if is_plain && is_recent && has_read {
            return true;
        }
        share.normal_claims.store(0, Ordering::Relaxed);
        share.all_read_at.store(now.as_micros(), Ordering::Relaxed);
        false
    }

    /// Notes that this process wrote a call of this machine with this priority.
    pub(crate) fn note_priority(&self, machine: &str, priority: Priority) {
        if priority.is_normal() {
            return;
        }
        if let Some(share) = self.machines.iter().find(|share| share.machine == machine) {
            share.has_priorities.store(true, Ordering::Relaxed);
        }
    }

    /// Notes what a claim of this machine got that read all priorities, or all values.
    pub(crate) fn note(&self, machine: usize, places: Places, claims: &Claims) {
        let Some(share) = self.machines.get(machine) else { return };
        share.claimed.fetch_add(u64::from(claims.count()), Ordering::Relaxed);
        share.is_busy.store(claims.count() > 0, Ordering::Relaxed);
        if claims.claimed.iter().any(|claimed| !claimed.attempt.priority.is_normal()) {
            share.has_priorities.store(true, Ordering::Relaxed);
        }
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

#[cfg(test)]
mod tests {
    use fsm_core::ids::{CallId, InstanceId};
    use fsm_store::claim::DueCall;
    use fsm_store::error::StoreError;
    use uuid::Uuid;

    use super::*;

    const DUE: DueCall = DueCall { call: CallId(Uuid::nil()), instance: InstanceId(Uuid::nil()), is_limited: false };

    fn shares() -> PriorityShares {
        PriorityShares::of(["order".to_owned(), "parcel".to_owned()].into_iter().map(|machine| (machine, false)))
    }

    fn busy(shares: &PriorityShares) {
        shares.machines[0].is_busy.store(true, Ordering::Relaxed);
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + ms * 1_000)
    }

    #[test]
    fn one_of_sixteen_claims_reads_all_priorities() {
        let shares = shares();
        busy(&shares);
        let reads: Vec<bool> = (0..64).map(|_| shares.reads_normal_only(0, at(0))).collect();
        assert!(!reads[0] && reads[1]);
        let longest = reads.split(|normal_only| !normal_only).map(<[bool]>::len).max();
        assert_eq!(longest, Some(15));
    }

    #[test]
    fn of_the_claims_that_read_all_priorities_one_of_eight_keeps_its_place_for_low_calls() {
        let (shares, mut kept_for_low) = (shares(), Vec::new());
        let one = || Claims { claimed: Vec::new(), unread: vec![(DUE, StoreError::Closed)] };
        for claim in 0..1024 {
            if !shares.reads_normal_only(0, at(0)) {
                let places = shares.places(0, 1);
                kept_for_low.extend((places.kept.low == 1).then_some(claim));
                shares.note(0, places, &one());
            }
        }
        assert_eq!(kept_for_low.len(), 1024 / 16 / 8);
        assert!(kept_for_low[0] <= 8 * 16, "{kept_for_low:?}");
    }

    #[test]
    fn a_claim_fifty_milliseconds_later_reads_all_priorities() {
        let shares = shares();
        busy(&shares);
        let reads: Vec<bool> = [0, 1, 49, 50, 51, 99, 100].map(|ms| shares.reads_normal_only(0, at(ms))).to_vec();
        assert_eq!(reads, [false, true, true, false, true, true, false]);
    }

    #[test]
    fn an_idle_process_and_one_that_has_seen_a_priority_read_all_priorities() {
        let shares = shares();
        assert!((0..9).all(|_| !shares.reads_normal_only(0, at(0))));
        busy(&shares);
        shares.note_priority("order", Priority::Normal);
        shares.note_priority("parcel", Priority::High);
        assert!(shares.reads_normal_only(0, at(0)));
        shares.note_priority("order", Priority::Low);
        assert!((0..9).all(|_| !shares.reads_normal_only(0, at(0))));
    }
}

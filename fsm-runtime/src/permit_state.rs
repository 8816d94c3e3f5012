//! The state of an engine for limits over partitions: which calls wait for a place, since when, and which places are free again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;
use tokio::sync::Notify;

use crate::guard;

/// A partition that does not use a free place within this time no longer keeps it from others.
const TURN: Duration = Duration::from_secs(1);

/// The state of one partition. Nothing of it is needed for correctness: it makes places that are free known at once, and lets partitions take turns.
#[derive(Debug, Default)]
pub(crate) struct PermitState {
    waits: Mutex<HashMap<String, Wait>>,
    /// Calls of this partition may wait for a limit that counts in another one.
    pub(crate) has_waiting: Notify,
    over: Mutex<Vec<(String, InstanceId)>>,
    /// Calls with a permit have ended.
    pub(crate) has_over: Notify,
    /// The number of consecutive failures of each home.
    failures: Mutex<HashMap<u32, u32>>,
}

/// The calls of one bucket, which has no room.
#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Timestamp,
    looked_at: Timestamp,
    /// The home has room from this time on, if that is known.
    until: Option<Timestamp>,
    freed_at: Option<Timestamp>,
}

impl Wait {
    fn has_turn(&self, now: Timestamp) -> bool {
        self.freed_at.is_none_or(|freed_at| now < freed_at + TURN)
    }
}

impl PermitState {
    /// Notes that calls wait for this bucket, which has no room. The home has some at `until`, if that is known.
    pub(crate) fn wait(&self, bucket: &str, now: Timestamp, until: Option<Timestamp>) {
        let mut waits = guard::lock(&self.waits);
        let since = waits.get(bucket).map_or(now, |wait| wait.since);
        waits.insert(bucket.to_owned(), Wait { since, looked_at: now, until, freed_at: None });
    }

    /// Notes that no call waits for this bucket, or that one has got a place.
    pub(crate) fn forget(&self, bucket: &str) {
        guard::lock(&self.waits).remove(bucket);
    }

    /// Notes that no call here can take a place.
    pub(crate) fn forget_all(&self) {
        guard::lock(&self.waits).clear();
    }

    /// Forgets the buckets for which `keep` is false.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) {
        guard::lock(&self.waits).retain(|bucket, _| keep(bucket));
    }

    /// True if the home of this bucket is asked again: at the time at which it has room or, if that is not known, after the poll interval.
    pub(crate) fn is_to_ask(&self, bucket: &str, poll: Duration, now: Timestamp) -> bool {
        let waits = guard::lock(&self.waits);
        waits.get(bucket).is_none_or(|wait| wait.until.unwrap_or(wait.looked_at + poll) <= now)
    }

    /// The time at which the home of this bucket has room, if that is known.
    pub(crate) fn until(&self, bucket: &str) -> Option<Timestamp> {
        guard::lock(&self.waits).get(bucket)?.until
    }

    /// The time since which calls wait for this bucket.
    pub(crate) fn since(&self, bucket: &str) -> Option<Timestamp> {
        guard::lock(&self.waits).get(bucket).map(|wait| wait.since)
    }

    /// Adds the time since which calls wait for each bucket, without those that have lost their turn.
    pub(crate) fn add_to(&self, all: &mut HashMap<String, Vec<Timestamp>>, now: Timestamp) {
        let mut waits = guard::lock(&self.waits);
        waits.retain(|_, wait| wait.has_turn(now));
        for (bucket, wait) in waits.iter() {
            all.entry(bucket.clone()).or_default().push(wait.since);
        }
    }

    /// Notes that this bucket has room. Returns true if calls wait for it.
    pub(crate) fn freed(&self, bucket: &str, now: Timestamp) -> bool {
        let mut waits = guard::lock(&self.waits);
        let Some(wait) = waits.get_mut(bucket) else { return false };
        wait.until = Some(now);
        wait.freed_at.get_or_insert(now);
        self.has_waiting.notify_one();
        true
    }

    /// Notes that a call with a permit has ended.
    pub(crate) fn note_over(&self, bucket: &str, instance: InstanceId) {
        guard::lock(&self.over).push((bucket.to_owned(), instance));
        self.has_over.notify_one();
    }

    /// The calls that have ended since the last time.
    pub(crate) fn take_over(&self) -> Vec<(String, InstanceId)> {
        std::mem::take(&mut *guard::lock(&self.over))
    }

    /// Counts a failure of a home. Returns the number of those before it.
    pub(crate) fn failed(&self, home: u32) -> u32 {
        let mut failures = guard::lock(&self.failures);
        let count = failures.entry(home).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    /// Notes that a home has answered.
    pub(crate) fn answered(&self, home: u32) {
        guard::lock(&self.failures).remove(&home);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> Timestamp {
        Timestamp::from_micros(us)
    }

    fn all(state: &PermitState, now: Timestamp) -> Vec<Timestamp> {
        let mut all = HashMap::new();
        state.add_to(&mut all, now);
        all.remove("stripe").unwrap_or_default()
    }

    #[test]
    fn a_partition_that_does_not_take_a_free_place_loses_its_turn() {
        let state = PermitState::default();
        state.wait("stripe", at(1), Some(at(100)));
        state.wait("stripe", at(5), None);
        let asks = |now| state.is_to_ask("stripe", Duration::from_micros(50), at(now));
        assert_eq!((all(&state, at(10_000_000)), [54, 55].map(asks)), (vec![at(1)], [false, true]));
        assert!(state.freed("stripe", at(10)) && !state.freed("mail", at(10)));
        assert_eq!((all(&state, at(20)), asks(10)), (vec![at(1)], true));
        // It is not the first one to hear of it that counts.
        assert!(state.freed("stripe", at(900_000)));
        assert_eq!(all(&state, at(1_000_010)), []);
        state.forget("stripe");
        assert_eq!(state.since("stripe"), None);
    }
}

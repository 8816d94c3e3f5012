//! The snapshot cache: the snapshots that this process's own commits left, so that the next request for an instance need not read its row.

#[cfg(feature = "postgres")]
mod hit_rate;

use std::mem::size_of;
use std::sync::{Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::commit::instance_key::{InstanceKey, InstanceMap};
use fsm_core::commit::rows::{CachedSnapshot, RowSnapshot};
use fsm_core::instance::Instance;

use super::request::Request;
use crate::guard;
#[cfg(feature = "postgres")]
use hit_rate::HitRate;

/// The maximum size of a generation in bytes: room for about 25,000 instances.
const MOST: usize = 32 << 20;
/// The approximate size of an entry without its texts and its record: a slot of a table that is half full, the row, and six allocations.
const ENTRY: usize = 2 * (size_of::<InstanceKey>() + size_of::<CachedSnapshot>()) + size_of::<Instance>() + 6 * 24;

/// The cached snapshots of a process. An entry that was not used while a whole generation was filled is dropped.
#[derive(Default)]
pub(crate) struct SnapshotCache {
    generations: Mutex<Generations>,
    #[cfg(feature = "postgres")]
    hit_rate: Mutex<HitRate>,
}

#[derive(Default)]
struct Generations {
    young: InstanceMap<CachedSnapshot>,
    /// The size of the young generation in bytes.
    bytes: usize,
    old: InstanceMap<CachedSnapshot>,
}

impl SnapshotCache {
    /// Gives each request of a batch the cached snapshot of its instance. The batch is in flight now, so the snapshots of all instances
    /// that it may write leave the cache until its commit has ended.
    pub(crate) fn attach(&self, batch: &mut [Request], touched: &[InstanceKey]) {
        #[cfg(feature = "postgres")]
        let is_used = self.use_cache();
        // Nobody else writes what SQLite's only committer has read.
        #[cfg(not(feature = "postgres"))]
        let is_used = true;
        let mut generations = self.lock();
        for request in batch.iter_mut() {
            request.cached = generations.take(&request.target).filter(|_| is_used || !request.is_send());
        }
        // The other touched instances are the receivers of events that verbs sent.
        if touched.len() > batch.len() {
            touched.iter().for_each(|target| drop(generations.take(target)));
        }
    }

    /// Sets or removes the cached snapshot of an instance. The commit that left it has ended, and the next one for this instance cannot
    /// begin before this call returns.
    pub(crate) fn put(&self, target: &InstanceKey, cached: Option<CachedSnapshot>) {
        let mut generations = self.lock();
        generations.take(target);
        if let Some(cached) = cached {
            generations.put(target.clone(), cached);
        }
    }

    /// Empties the cache, as the death of the process would.
    #[cfg(feature = "testing")]
    pub(crate) fn forget(&self) {
        *self.lock() = Generations::default();
    }

    /// True if the sends of the next batch use the cache.
    #[cfg(feature = "postgres")]
    fn use_cache(&self) -> bool {
        guard::lock(&self.hit_rate).use_cache()
    }

    /// Records whether the cached snapshots of a batch were valid. Only the snapshots of sends count, because they may be old.
    #[cfg(feature = "postgres")]
    pub(crate) fn record(&self, batch: &[Request], were_valid: bool) {
        if batch.iter().any(|request| request.is_send() && request.cached_snapshot(None).is_some()) {
            guard::lock(&self.hit_rate).record(were_valid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        guard::lock(&self.generations)
    }
}

impl Generations {
    fn take(&mut self, target: &InstanceKey) -> Option<CachedSnapshot> {
        match self.young.remove(target) {
            Some(cached) => {
                self.bytes -= weight(target, &cached);
                Some(cached)
            }
            None => self.old.remove(target),
        }
    }

    fn put(&mut self, target: InstanceKey, cached: CachedSnapshot) {
        let weight = weight(&target, &cached);
        if self.bytes + weight > MOST {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        // An entry that would fill a generation alone is not cached.
        if weight <= MOST {
            self.bytes += weight;
            self.young.insert(target, cached);
        }
    }
}

fn weight(target: &InstanceKey, cached: &CachedSnapshot) -> usize {
    let texts = 2 * (target.machine.len() + target.key.len());
    let more = match cached {
        CachedSnapshot::SomethingWaits => 0,
        CachedSnapshot::RowSnapshot(RowSnapshot { instance, newest, .. }) => {
            let attempt = newest.as_ref().map_or(0, |newest| {
                let texts = [&newest.machine, &newest.verb, &newest.event, &newest.to];
                size_of::<Attempt>() + texts.iter().map(|text| text.len() + 24).sum::<usize>()
            });
            attempt + instance.record.as_ref().map_or(0, Vec::len) + instance.state.as_ref().map_or(0, String::len)
        }
    };
    ENTRY + texts + more
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fsm_core::ids::InstanceId;
    use fsm_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use fsm_core::commit::rows::RowVersion;

    pub(super) fn seen(record: usize) -> CachedSnapshot {
        let instance = Instance::new(InstanceId(Uuid::nil()), "payment", "one", Timestamp::default());
        let instance = Arc::new(Instance { record: Some(vec![0; record]), ..instance });
        CachedSnapshot::RowSnapshot(RowSnapshot { instance, newest: None, has_timer: false, row_version: RowVersion::Row })
    }

    pub(super) fn target(n: usize) -> InstanceKey {
        InstanceKey::new("payment", &n.to_string())
    }

    #[test]
    fn what_is_taken_is_not_known_any_more() {
        let snapshot_cache = SnapshotCache::default();
        snapshot_cache.put(&target(1), Some(seen(10)));
        assert_eq!(snapshot_cache.lock().take(&target(1)), Some(seen(10)));
        assert_eq!(snapshot_cache.lock().take(&target(1)), None);
        snapshot_cache.put(&target(1), Some(seen(10)));
        snapshot_cache.put(&target(1), None);
        assert_eq!(snapshot_cache.lock().take(&target(1)), None);
        assert_eq!(snapshot_cache.lock().bytes, 0);
    }

    #[test]
    fn no_more_is_remembered_than_two_generations() {
        let snapshot_cache = SnapshotCache::default();
        let record = MOST / 8;
        for n in 0..100 {
            snapshot_cache.put(&target(n), Some(seen(record)));
            // An entry that is used again and again stays.
            let first = snapshot_cache.lock().take(&target(0));
            assert_eq!(first, Some(seen(record)), "after {n} others");
            snapshot_cache.put(&target(0), first);
        }
        let kept = (0..100).filter(|n| snapshot_cache.lock().take(&target(*n)).is_some()).count();
        assert!((7..=14).contains(&kept), "{kept} of an eighth of a generation are remembered");
        snapshot_cache.put(&target(0), Some(seen(MOST)));
        assert_eq!(snapshot_cache.lock().take(&target(0)), None);
    }
}

//! What this process remembers of instances that its own commits left: whoever asks next for one of them need not look how it is.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::{Mutex, MutexGuard};

use fsm_core::instance::Instance;

use super::request::{InstanceKey, Request};
use crate::guard;
use crate::store::lock::{CachedSnapshot, RowSnapshot};

/// So many bytes fill a generation.
const MOST: usize = 8 << 20;
/// What an entry takes beside its texts and its record, roughly: a place in a table that is half full, the row, and six pieces of memory.
const ENTRY: usize = 2 * (size_of::<InstanceKey>() + size_of::<CachedSnapshot>()) + size_of::<Instance>() + 6 * 24;

/// After so many wrong ones in a row, memories are tried in one of 2^so many batches.
const MOST_DOUBT: u32 = 10;

/// The memories of a process. What was not asked for since as much again was remembered is forgotten.
#[derive(Default)]
pub(crate) struct SnapshotCache {
    generations: Mutex<Generations>,
    doubts: Mutex<Doubts>,
}

/// How far instances at rest are as they were left. One that another process moved makes a whole batch wait for a second look, and where
/// several processes take turns with the same instances that would be every batch.
#[derive(Default)]
struct Doubts {
    /// How many batches in a row were wrong.
    wrong: u32,
    /// So many batches do without.
    skip: u32,
}

#[derive(Default)]
struct Generations {
    young: HashMap<InstanceKey, CachedSnapshot>,
    /// What the young one takes.
    bytes: usize,
    old: HashMap<InstanceKey, CachedSnapshot>,
}

impl SnapshotCache {
    /// Gives each request of a batch what is remembered of its instance. The batch is under way, and from now on nothing is known of what it
    /// may write: not before its commit is.
    pub(crate) fn attach(&self, batch: &mut [Request], touched: &[InstanceKey]) {
        let trusts = self.doubts().trusts();
        let mut generations = self.lock();
        for request in batch.iter_mut() {
            request.cached = generations.take(&request.target).filter(|_| trusts || !request.is_send());
        }
        // Others that it touches are those to whom its verbs sent.
        if touched.len() > batch.len() {
            touched.iter().for_each(|target| drop(generations.take(target)));
        }
    }

    /// From now on this is what is known of the instance. A commit that left it so is concluded, and it is not free for the next one yet.
    pub(crate) fn put(&self, target: &InstanceKey, cached: Option<CachedSnapshot>) {
        let mut generations = self.lock();
        generations.take(target);
        if let Some(cached) = cached {
            generations.put(target.clone(), cached);
        }
    }

    /// Whether what a batch remembered was true. That of a send counts: it may have lain for long.
    pub(crate) fn judge(&self, batch: &[Request], was_true: bool) {
        if batch.iter().any(|request| request.is_send() && request.seen(None).is_some()) {
            self.doubts().judge(was_true);
        }
    }

    /// Forgets everything, as the death of the process would.
    #[cfg(feature = "testing")]
    pub(crate) fn forget(&self) {
        *self.lock() = Generations::default();
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        guard::lock(&self.doubts)
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        guard::lock(&self.generations)
    }
}

impl Doubts {
    fn trusts(&mut self) -> bool {
        let trusts = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        trusts
    }

    fn judge(&mut self, was_true: bool) {
        self.wrong = if was_true { 0 } else { (self.wrong + 1).min(MOST_DOUBT) };
        self.skip = if was_true { 0 } else { 1 << self.wrong };
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
        // One that fills a generation alone is not worth it.
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
        CachedSnapshot::RowSnapshot(RowSnapshot { instance, .. }) => {
            instance.record.as_ref().map_or(0, Vec::len) + instance.state.as_ref().map_or(0, String::len)
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
    use crate::store::write::RowVersion;

    fn seen(record: usize) -> CachedSnapshot {
        let instance = Instance::new(InstanceId(Uuid::nil()), "payment", "one", Timestamp::default());
        let instance = Arc::new(Instance { record: Some(vec![0; record]), ..instance });
        CachedSnapshot::RowSnapshot(RowSnapshot {
            instance,
            has_timer: false,
            row_version: RowVersion::Row { xmin: 1, updated_at: Timestamp::default() },
        })
    }

    fn target(n: usize) -> InstanceKey {
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
    fn what_is_wrong_again_and_again_is_hardly_ever_tried() {
        let mut doubts = Doubts::default();
        let mut tried = 0;
        for _ in 0..10_000 {
            if doubts.trusts() {
                doubts.judge(false);
                tried += 1;
            }
        }
        assert!((10..=20).contains(&tried), "tried {tried} times in 10,000");
        while !doubts.trusts() {}
        doubts.judge(true);
        assert!((0..100).all(|_| doubts.trusts()), "once it was true again, all are tried");
    }

    #[test]
    fn a_batch_without_a_look_of_its_own_says_nothing_of_memories() {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = fsm_core::ids::CallId(Uuid::nil());
        let send = fsm_core::decide::send::Send { id, event, dedup: None, deliver_at: None, reject_if_busy: false, inbox_limit: 1 };
        let mut batch = [Request::new(target(1), crate::committer::request::RequestKind::Send(send), None)];
        let snapshot_cache = SnapshotCache::default();
        for (cached, doubts) in [(None, 0), (Some(CachedSnapshot::SomethingWaits), 0), (Some(seen(10)), 1)] {
            batch[0].cached = cached;
            snapshot_cache.judge(&batch, false);
            assert_eq!(snapshot_cache.doubts().wrong, doubts);
        }
    }

    #[test]
    fn no_more_is_remembered_than_two_generations() {
        let snapshot_cache = SnapshotCache::default();
        let record = 1 << 20;
        for n in 0..100 {
            snapshot_cache.put(&target(n), Some(seen(record)));
            // What is asked for again and again stays.
            let first = snapshot_cache.lock().take(&target(0));
            assert_eq!(first, Some(seen(record)), "after {n} others");
            snapshot_cache.put(&target(0), first);
        }
        let kept = (0..100).filter(|n| snapshot_cache.lock().take(&target(*n)).is_some()).count();
        assert!((7..=14).contains(&kept), "{kept} of 1 MiB are remembered");
        snapshot_cache.put(&target(0), Some(seen(MOST)));
        assert_eq!(snapshot_cache.lock().take(&target(0)), None);
    }
}

//! The limit on outdated snapshots, where several processes use the same instances.

/// After n wrong batches in a row (n up to this limit), the sends of the next 2^n batches do not use the cache.
const MOST_WRONG: u32 = 10;

/// Tells whether cached snapshots of idle instances are usually still valid. One outdated snapshot costs the whole batch a second read.
/// Without this limit every batch would pay it where several processes use the same instances alternately.
#[derive(Default)]
pub(super) struct HitRate {
    /// The number of batches in a row that had an outdated snapshot.
    wrong: u32,
    /// The number of next batches whose sends do not use the cache.
    skip: u32,
}

impl HitRate {
    /// True if the sends of the next batch use the cache.
    pub(super) fn use_cache(&mut self) -> bool {
        let is_used = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        is_used
    }

    /// Records whether the cached snapshots of a batch were valid.
    pub(super) fn record(&mut self, were_valid: bool) {
        self.wrong = if were_valid { 0 } else { (self.wrong + 1).min(MOST_WRONG) };
        self.skip = if were_valid { 0 } else { 1 << self.wrong };
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::SnapshotCache;
    use super::super::tests::{seen, target};
    use super::*;
    use crate::committer::request::Request;
    use crate::guard;
    use fsm_core::commit::rows::CachedSnapshot;

    #[test]
    fn what_is_wrong_again_and_again_is_hardly_ever_tried() {
        let mut hit_rate = HitRate::default();
        let mut tried = 0;
        for _ in 0..10_000 {
            if hit_rate.use_cache() {
                hit_rate.record(false);
                tried += 1;
            }
        }
        assert!((10..=20).contains(&tried), "tried {tried} times in 10,000");
        while !hit_rate.use_cache() {}
        hit_rate.record(true);
        assert!((0..100).all(|_| hit_rate.use_cache()), "once it was true again, all are tried");
    }

    #[test]
    fn a_batch_without_a_look_of_its_own_says_nothing_of_memories() {
        let event = fsm_core::outcome::Event { name: "Paid".into(), payload: Vec::new() };
        let id = fsm_core::ids::CallId(Uuid::nil());
        let send = fsm_core::decide::send::Send::new(id, event, 1);
        let mut batch = [Request::new(target(1), fsm_core::commit::request::RequestKind::Send(send), None)];
        let snapshot_cache = SnapshotCache::default();
        for (cached, hit_rate) in [(None, 0), (Some(CachedSnapshot::SomethingWaits), 0), (Some(seen(10)), 1)] {
            batch[0].cached = cached;
            snapshot_cache.record(&batch, false);
            assert_eq!(guard::lock(&snapshot_cache.hit_rate).wrong, hit_rate);
        }
    }
}

//! What this process remembers of instances that its own commits left: whoever asks next for one of them need not look how it is.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::{Mutex, MutexGuard};

use fsm_core::instance::Instance;

use super::request::{Request, Whose};
use crate::guard;
use crate::store::lock::{Memory, Seen};

/// So many bytes fill a generation.
const MOST: usize = 8 << 20;
/// What an entry takes beside its texts and its record, roughly: a place in a table that is half full, the row, and six pieces of memory.
const ENTRY: usize = 2 * (size_of::<Whose>() + size_of::<Memory>()) + size_of::<Instance>() + 6 * 24;

/// After so many wrong ones in a row, memories are tried in one of 2^so many batches.
const MOST_DOUBT: u32 = 10;

/// The memories of a process. What was not asked for since as much again was remembered is forgotten.
#[derive(Default)]
pub(crate) struct Memories {
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
    young: HashMap<Whose, Memory>,
    /// What the young one takes.
    bytes: usize,
    old: HashMap<Whose, Memory>,
}

impl Memories {
    /// Gives each request of a batch what is remembered of its instance. The batch is under way, and from now on nothing is known of what it
    /// may write: not before its commit is.
    pub(crate) fn remind(&self, batch: &mut [Request], touched: &[Whose]) {
        let trusts = self.doubts().trusts();
        let mut generations = self.lock();
        for request in batch.iter_mut() {
            request.memory = generations.take(&request.whose).filter(|_| trusts || !request.is_send());
        }
        // Others that it touches are those to whom its verbs sent.
        if touched.len() > batch.len() {
            touched.iter().for_each(|whose| drop(generations.take(whose)));
        }
    }

    /// From now on this is what is known of the instance. A commit that left it so is concluded, and it is not free for the next one yet.
    pub(crate) fn put(&self, whose: &Whose, memory: Option<Memory>) {
        let mut generations = self.lock();
        generations.take(whose);
        if let Some(memory) = memory {
            generations.put(whose.clone(), memory);
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
    fn take(&mut self, whose: &Whose) -> Option<Memory> {
        match self.young.remove(whose) {
            Some(memory) => {
                self.bytes -= weight(whose, &memory);
                Some(memory)
            }
            None => self.old.remove(whose),
        }
    }

    fn put(&mut self, whose: Whose, memory: Memory) {
        let weight = weight(&whose, &memory);
        if self.bytes + weight > MOST {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        // One that fills a generation alone is not worth it.
        if weight <= MOST {
            self.bytes += weight;
            self.young.insert(whose, memory);
        }
    }
}

fn weight(whose: &Whose, memory: &Memory) -> usize {
    let texts = 2 * (whose.machine.len() + whose.key.len());
    let more = match memory {
        Memory::SomethingWaits => 0,
        Memory::Seen(Seen { instance, .. }) => {
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
    use crate::store::write::Stamp;

    fn seen(record: usize) -> Memory {
        let instance = Instance::new(InstanceId(Uuid::nil()), "payment", "one", Timestamp::default());
        let instance = Arc::new(Instance { record: Some(vec![0; record]), ..instance });
        Memory::Seen(Seen { instance, has_timer: false, stamp: Stamp::Row { xmin: 1, updated_at: Timestamp::default() } })
    }

    fn whose(n: usize) -> Whose {
        Whose::new("payment", &n.to_string())
    }

    #[test]
    fn what_is_taken_is_not_known_any_more() {
        let memories = Memories::default();
        memories.put(&whose(1), Some(seen(10)));
        assert_eq!(memories.lock().take(&whose(1)), Some(seen(10)));
        assert_eq!(memories.lock().take(&whose(1)), None);
        memories.put(&whose(1), Some(seen(10)));
        memories.put(&whose(1), None);
        assert_eq!(memories.lock().take(&whose(1)), None);
        assert_eq!(memories.lock().bytes, 0);
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
        let mut batch = [Request::new(whose(1), crate::committer::request::What::Send(send), None)];
        let memories = Memories::default();
        for (memory, doubts) in [(None, 0), (Some(Memory::SomethingWaits), 0), (Some(seen(10)), 1)] {
            batch[0].memory = memory;
            memories.judge(&batch, false);
            assert_eq!(memories.doubts().wrong, doubts);
        }
    }

    #[test]
    fn no_more_is_remembered_than_two_generations() {
        let memories = Memories::default();
        let record = 1 << 20;
        for n in 0..100 {
            memories.put(&whose(n), Some(seen(record)));
            // What is asked for again and again stays.
            let first = memories.lock().take(&whose(0));
            assert_eq!(first, Some(seen(record)), "after {n} others");
            memories.put(&whose(0), first);
        }
        let kept = (0..100).filter(|n| memories.lock().take(&whose(*n)).is_some()).count();
        assert!((7..=14).contains(&kept), "{kept} of 1 MiB are remembered");
        memories.put(&whose(0), Some(seen(MOST)));
        assert_eq!(memories.lock().take(&whose(0)), None);
    }
}

//! This process as a commit sees it: its machines, its slots and its ids.

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::commit::batch_commit::BatchCommit;
use fsm_core::commit::environment::Environment;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome;
use fsm_core::machine::Machine;
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use crate::engine::Engine;
use crate::error::Error;

/// The result of one request of this engine.
pub(crate) type CommitOutcome = outcome::CommitOutcome<Engine>;

impl Engine {
    /// A batch that is decided now, with this process's session.
    pub(crate) fn batch_commit(&self) -> BatchCommit<'_, Engine> {
        BatchCommit::new(self, self.clock.now(), self.session())
    }
}

impl Environment for Engine {
    type Slot = OwnedSemaphorePermit;
    type Refused = Error;

    fn machine(&self, name: &str) -> Result<&Machine, Error> {
        self.catalog.expect(name).map(|known| &*known.machine)
    }

    fn not_found(&self, target: &InstanceKey) -> Error {
        Error::not_found(&target.machine, &target.key)
    }

    fn partition_elsewhere(&self, key: &str) -> Option<u32> {
        self.partition?.elsewhere(key)
    }

    fn has_partitions(&self) -> bool {
        self.partition.is_some()
    }

    fn slot_for_new_call(&self, machine: &str, priority: Priority) -> Option<OwnedSemaphorePermit> {
        if self.work.as_ref()?.shares.admits(machine, priority) { self.free_slot() } else { None }
    }

    fn may_start(&self) -> bool {
        Engine::may_start(self)
    }

    fn begins_calls(&self) -> bool {
        self.store.begins_calls()
    }

    fn inbox_limit(&self) -> u64 {
        self.limits.inbox
    }

    fn fresh(&self) -> Uuid {
        Uuid::now_v7()
    }

    /// Notes that a call waits for a slot, so that new calls do not pass it. A call with a limit waits for its limit.
    fn opened(&self, attempt: &Attempt, now: Timestamp) {
        let Some(work) = &self.work else { return };
        work.shares.note_priority(&attempt.machine, attempt.priority);
        if attempt.state == AttemptState::Scheduled && attempt.limit.is_none() && attempt.scheduled_at <= now {
            work.shares.note_waiting(&attempt.machine, attempt.priority);
        }
    }
}

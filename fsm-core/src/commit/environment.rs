//! The process in which a commit runs: its machines, its free slots and its ids.

use uuid::Uuid;

use super::instance_key::InstanceKey;
use crate::call::Attempt;
use crate::decide::refusal::Refusal;
use crate::machine::Machine;
use crate::priority::Priority;
use crate::time::Timestamp;

/// The process of a commit.
pub trait Environment: Sync {
    /// A free slot for one attempt. It is free again when it is dropped.
    type Slot: Send;
    /// The error that a caller gets.
    type Refused: From<Refusal> + Send;

    /// The machine with this name, or the error if this process does not serve it.
    fn machine(&self, name: &str) -> Result<&Machine, Self::Refused>;

    /// The error for an instance that does not exist.
    fn not_found(&self, target: &InstanceKey) -> Self::Refused;

    /// The number of the partition that has the instance with this key, if it is not the one of this commit. `None` for all keys on a database
    /// without partitions.
    fn partition_elsewhere(&self, _key: &str) -> Option<u32> {
        None
    }

    /// True if the database has partitions.
    fn has_partitions(&self) -> bool {
        false
    }

    /// Takes a free slot for a new call, unless calls that come first are known to wait.
    fn slot_for_new_call(&self, machine: &str, priority: Priority) -> Option<Self::Slot>;

    /// True if attempts may start in this process: it works and does not shut down.
    fn may_start(&self) -> bool;

    /// True if this process may open calls. One that may only send puts its events into the inbox.
    fn begins_calls(&self) -> bool;

    /// The maximum number of events in an inbox.
    fn inbox_limit(&self) -> u64;

    /// An unused id. Ids increase with time.
    fn fresh(&self) -> Uuid;

    /// A call was written. It executes, or it waits.
    fn opened(&self, attempt: &Attempt, now: Timestamp);
}

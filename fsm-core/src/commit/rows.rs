//! The rows that a commit reads, and those that it writes beside the changes of instances.

use std::sync::Arc;

use super::family_notice::FamilyNotice;
use crate::call::Attempt;
use crate::changes::NoteKind;
use crate::family::Parent;
use crate::ids::{CallId, InstanceId};
use crate::instance::Instance;
use crate::outcome::{Child, Event, Outgoing};
use crate::priority::Priority;
use crate::time::Timestamp;

/// An instance by machine and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target<'a> {
    /// The machine.
    pub machine: &'a str,
    /// The user's name for it.
    pub key: &'a str,
}

/// The handling of instances that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// Wait for the lock.
    AreWaitedFor,
    /// Leave out the requests for the instance.
    AreSkipped,
}

/// An instance that this transaction has locked.
#[derive(Debug, Clone, PartialEq)]
pub struct Locked {
    /// Its row.
    pub instance: Instance,
    /// The newest attempt.
    pub newest: Option<Arc<Attempt>>,
    /// True if the instance has a timer of its state or a wake-up. Delayed sends do not count.
    pub has_timer: bool,
}

/// The version that a guard compares: if it is unchanged, the instance is still as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVersion {
    /// In PostgreSQL, the row version that the instance was read with.
    Row,
    /// In SQLite, the file version in which the instance was read.
    FileVersion(FileVersion),
}

/// A version of a SQLite file. While it is unchanged, no other writer has changed rows that decisions depend on, so that two reads differ
/// only by this committer's own writes. A claim does not change it, because no decision depends on the columns that a claim writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The number of the writer's connection. `data_version` is only comparable on the same connection.
    pub connection: u64,
    /// SQLite's `data_version`, which changes when another connection commits.
    pub data_version: i64,
    /// The number of transactions on the writer's connection that were not the committer's. Claims are not counted.
    pub others: u64,
}

/// An instance as one commit left it, read without a lock.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSnapshot {
    /// Its row.
    pub instance: Arc<Instance>,
    /// The newest attempt, if it is open or exhausted.
    pub newest: Option<Arc<Attempt>>,
    /// True if the instance has a timer of its state or a wake-up. Delayed sends do not count.
    pub has_timer: bool,
    /// The version that the guard of a write compares.
    pub row_version: RowVersion,
}

/// The content of the snapshot cache for an instance.
#[derive(Debug, Clone, PartialEq)]
pub enum CachedSnapshot {
    /// The instance as a commit left it. This process knows of no later commit.
    RowSnapshot(RowSnapshot),
    /// An event waits in the inbox, so that the completion of the attempt needs more than the instance's row.
    SomethingWaits,
}

impl CachedSnapshot {
    /// The cache entry for an instance after a commit.
    pub fn of(instance: &Instance, seen: Option<RowSnapshot>) -> Option<CachedSnapshot> {
        if instance.inbox_len() > 0 { Some(CachedSnapshot::SomethingWaits) } else { seen.map(CachedSnapshot::RowSnapshot) }
    }

    /// The snapshot, if there is one and, with SQLite, it is of this file version.
    pub fn seen(&self, file_version: Option<FileVersion>) -> Option<&RowSnapshot> {
        match self {
            CachedSnapshot::RowSnapshot(seen)
                if file_version.is_none_or(|file_version| seen.row_version == RowVersion::FileVersion(file_version)) =>
            {
                Some(seen)
            }
            CachedSnapshot::RowSnapshot(_) | CachedSnapshot::SomethingWaits => None,
        }
    }
}

/// A call id that the database already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCall {
    /// The id.
    pub call: CallId,
    /// The instance.
    pub instance: InstanceId,
    /// The place of the call id.
    pub place: Place,
}

/// The places in which a call id can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The call has begun.
    Call,
    /// The event waits in the inbox.
    Inbox,
    /// The delayed send is not due yet.
    Timer,
    /// The event was rejected: no edge accepted it when it left the inbox, or its receiver refused it.
    Rejected,
}

/// An event to add to the outbox.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a> {
    /// The instance whose verb sent it.
    pub sender: InstanceId,
    /// The event and its receiver.
    pub outgoing: &'a Outgoing,
    /// The time of the next delivery, if the event is the first of its line.
    pub due_at: Option<Timestamp>,
}

/// An event that is added to the outbox of the partition, because its receiver belongs to another one.
#[derive(Debug, Clone, PartialEq)]
pub struct ToPartition<'a> {
    /// The number of the receiver's partition.
    pub partition: u32,
    /// The instance whose verb sent it.
    pub sender: InstanceId,
    /// The event and its receiver.
    pub outgoing: &'a Outgoing,
    /// The notice, if the row is one between a parent and a child.
    pub notice: Option<&'a FamilyNotice>,
}

/// An event in the outbox.
#[derive(Debug, Clone, PartialEq)]
pub struct InLine {
    /// The id of the call that starts when the event is taken from the inbox.
    pub call: CallId,
    /// The event.
    pub event: Event,
    /// The instance whose verb sent it.
    pub sender: InstanceId,
    /// The number of deliveries in a row that found no room. Only the first event of a line counts them.
    pub tries: u32,
    /// The priority of the call.
    pub priority: Priority,
}

/// A note in the history of the sender of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct SenderNote {
    /// The sender.
    pub sender: InstanceId,
    /// The kind.
    pub kind: NoteKind,
    /// The call of the event.
    pub call: CallId,
    /// The text of the note.
    pub detail: String,
}

/// A delayed send that was cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsent {
    /// The machine and the key of the receiver, if it still exists.
    pub receiver: Option<(String, String)>,
    /// The event that is not delivered.
    pub event: String,
}

/// The children of an instance that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenChildren {
    /// One of the present group has not ended.
    pub of_group: bool,
    /// One that is to be cancelled with the instance has not ended.
    pub attached: bool,
}

/// The end or the error of a child that has to be delivered to its parent.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildEvent {
    /// The row.
    pub id: i64,
    /// The id of the call that the event becomes.
    pub call: CallId,
    /// The event.
    pub event: Event,
}

/// A child that belongs to another partition, as a row of its parent's partition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteChild<'a> {
    /// The parent and the group.
    pub parent: Parent,
    /// The number of the child's partition.
    pub partition: u32,
    /// The child.
    pub child: &'a Child,
}

/// A child in another partition that is to be cancelled with its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteToCancel {
    /// The number of its partition.
    pub partition: u32,
    /// Its group.
    pub group: i64,
    /// Its machine.
    pub machine: String,
    /// Its key.
    pub key: String,
}

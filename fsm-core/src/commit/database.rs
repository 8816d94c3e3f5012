//! The database as a commit sees it: the reads of a decision, and the writes of what was decided.

use std::collections::{HashMap, HashSet};

use super::rows::{
    ChildEvent, FileVersion, InLine, KnownCall, Locked, Locks, OpenChildren, Put, RemoteChild, RemoteToCancel, RowSnapshot, SenderNote,
    Target, ToPartition, Unsent,
};
use super::written::Written;
use crate::call::Attempt;
use crate::changes::{Changes, Request, Waiting};
use crate::decide::inbox::Inbox;
use crate::ids::{CallId, InstanceId, TimerId};
use crate::instance::Instance;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// A connection, or a transaction, on which a commit reads and writes.
///
/// All rows that one method returns are of one moment. Between two calls other transactions may commit, unless they wait for a lock.
pub trait Database: Send {
    /// The error of a read or a write.
    type Error: From<Fault> + Send;

    /// Reads these distinct instances, in the order of `targets`, and locks them until the transaction ends. The second list has the places
    /// of the targets that another transaction has locked, if `locks` says that they are left out.
    fn lock(
        &mut self,
        targets: &[Target<'_>],
        locks: Locks,
    ) -> impl Future<Output = Answer<(Vec<Option<Locked>>, Vec<usize>), Self>> + Send;

    /// Reads these distinct instances, in the order of `targets`, without locks. `file_version` is set for SQLite.
    fn see(
        &mut self,
        targets: &[Target<'_>],
        file_version: Option<FileVersion>,
    ) -> impl Future<Output = Answer<Vec<Option<RowSnapshot>>, Self>> + Send;

    /// The first `most` events in the inbox of each of these instances, and the forecast of the whole inbox.
    fn inbox_ends(&mut self, instances: &[&Instance], most: i64) -> impl Future<Output = Answer<HashMap<InstanceId, Inbox>, Self>> + Send;

    /// The first `most` events in the inbox of an instance, by position.
    fn inbox(&mut self, instance: &Instance, most: i64) -> impl Future<Output = Answer<Vec<Waiting>, Self>> + Send;

    /// The last ended attempt of each of these calls, in any order.
    fn last_attempts(&mut self, calls: &[CallId]) -> impl Future<Output = Answer<Vec<Attempt>, Self>> + Send;

    /// The requests among `asked` (instance and dedup id) that the database knows.
    fn requests(&mut self, asked: &[(InstanceId, &str)]) -> impl Future<Output = Answer<Vec<(InstanceId, Request)>, Self>> + Send;

    /// The call ids among these that the database already has.
    fn known(&mut self, calls: &[CallId]) -> impl Future<Output = Answer<Vec<KnownCall>, Self>> + Send;

    /// True if the instance has another delayed send beside this one.
    fn has_another_timer(&mut self, instance: InstanceId, beside: TimerId) -> impl Future<Output = Answer<bool, Self>> + Send;

    /// Writes each of the changes completely or not at all. Their instances are distinct and locked. In the transaction of a caller
    /// (`is_guest`), a future that is dropped leaves all or nothing of them.
    fn write(&mut self, changes: &[&Changes], is_guest: bool) -> impl Future<Output = Answer<Vec<Written>, Self>> + Send;

    /// Writes and commits each of the changes whose instance still has the row version and the time of its last change that are given, by
    /// one statement. Returns the instances that are written, or `None` if nothing is written because the batch needs locks. Only for
    /// PostgreSQL.
    fn write_guarded(
        &mut self,
        changes: &[(&Changes, Timestamp)],
    ) -> impl Future<Output = Answer<Option<HashSet<InstanceId>>, Self>> + Send;

    /// Adds events to the inbox of one instance, in this order. Each of the changes is decided on the one before and
    /// [only adds](Changes::only_adds).
    fn write_added(&mut self, changes: &[&Changes]) -> impl Future<Output = Answer<(), Self>> + Send;

    /// The machine and the key of those among these receivers that have a line in the outbox.
    fn lines(&mut self, receivers: &[Target<'_>]) -> impl Future<Output = Answer<HashSet<(String, String)>, Self>> + Send;

    /// The first events of a line, at most `limit`.
    fn line(&mut self, receiver: Target<'_>, limit: u32) -> impl Future<Output = Answer<Vec<InLine>, Self>> + Send;

    /// Adds the events to the outbox, in this order.
    fn put_in_outbox(&mut self, events: &[Put<'_>], now: Timestamp) -> impl Future<Output = Answer<(), Self>> + Send;

    /// Adds the events to the outbox of this partition, in this order. They are for instances of other partitions.
    fn put_in_partition_outbox(&mut self, events: &[ToPartition<'_>], now: Timestamp) -> impl Future<Output = Answer<(), Self>> + Send;

    /// Deletes the events from the outbox. Returns `false` if another process has delivered one of them.
    fn take_from_outbox(&mut self, calls: &[CallId]) -> impl Future<Output = Answer<bool, Self>> + Send;

    /// Sets the time of the next delivery of a line and the number of deliveries in a row that found no room.
    fn deliver_again(&mut self, receiver: Target<'_>, due_at: Timestamp, tries: u32) -> impl Future<Output = Answer<(), Self>> + Send;

    /// Cancels delayed sends. One that is missing in the result was delivered, is being delivered, or never existed.
    fn unsend(&mut self, sends: &[CallId], now: Timestamp) -> impl Future<Output = Answer<HashMap<CallId, Unsent>, Self>> + Send;

    /// Cancels delayed sends to instances of other partitions. One that is missing in the result was delivered, is being delivered, or never existed.
    fn unsend_to_partitions(&mut self, sends: &[CallId]) -> impl Future<Output = Answer<HashMap<CallId, Unsent>, Self>> + Send;

    /// Adds notes to the histories of senders. A sender that was deleted gets none.
    fn note_senders(&mut self, notes: &[SenderNote], now: Timestamp) -> impl Future<Output = Answer<(), Self>> + Send;

    /// The ends and errors of children that are not delivered to this parent yet, in their order, at most `limit`.
    fn child_events(&mut self, parent: InstanceId, limit: u32) -> impl Future<Output = Answer<Vec<ChildEvent>, Self>> + Send;

    /// Deletes these events of children. Returns `false` if another process has delivered one of them.
    fn take_child_events(&mut self, events: &[i64]) -> impl Future<Output = Answer<bool, Self>> + Send;

    /// The children of this parent that have not ended.
    fn open_children(&mut self, parent: InstanceId) -> impl Future<Output = Answer<OpenChildren, Self>> + Send;

    /// Adds children that belong to other partitions. Returns the ids of the first calls of those that were not there: the same parent has not
    /// started them in the same group before.
    fn put_remote_children(
        &mut self,
        children: &[RemoteChild<'_>],
        now: Timestamp,
    ) -> impl Future<Output = Answer<HashSet<CallId>, Self>> + Send;

    /// Marks children in other partitions that are to be cancelled with this parent, at most `limit`, and returns those that were not marked.
    fn remote_to_cancel(&mut self, parent: InstanceId, limit: u32) -> impl Future<Output = Answer<Vec<RemoteToCancel>, Self>> + Send;

    /// Stores the trace contexts of calls that have no row of their own yet, each with the instance that it belongs to.
    fn put_traces(&mut self, traces: &[(CallId, InstanceId, TraceContext)]) -> impl Future<Output = Answer<(), Self>> + Send;
}

/// The answer of a database.
pub type Answer<T, D> = Result<T, <D as Database>::Error>;

/// A fault that a commit finds in what the database answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Another process has changed the same rows in the meantime. The whole batch is decided again.
    ConcurrentChange,
    /// The rows contradict each other.
    Corrupt {
        /// The contradiction, as a sentence.
        what: String,
    },
}

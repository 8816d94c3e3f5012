//! The database of a commit: each method of the protocol's trait is one function of this crate.

use std::collections::{HashMap, HashSet};

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Request, Waiting};
use fsm_core::commit::database::{Database, Fault};
use fsm_core::commit::rows::{
    ChildEvent, FileVersion, InLine, KnownCall, Locked, Locks, OpenChildren, Put, RemoteChild, RemoteToCancel, RowSnapshot, SenderNote,
    Target, ToPartition, Unsent,
};
use fsm_core::commit::written::Written;
#[cfg(feature = "postgres")]
use fsm_core::commit::written::fits;
use fsm_core::decide::inbox::Inbox;
use fsm_core::ids::{CallId, InstanceId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;
use fsm_core::trace::TraceContext;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::{family, lock, outbox, partition_outbox, remote_children, timers, traces, write};

impl Database for Conn<'_> {
    type Error = StoreError;

    async fn lock(&mut self, targets: &[Target<'_>], locks: Locks) -> Result<(Vec<Option<Locked>>, Vec<usize>)> {
        match locks {
            Locks::AreWaitedFor => Ok((lock::instances(self, targets).await?, Vec::new())),
            Locks::AreSkipped => lock::free_instances(self, targets).await,
        }
    }

    async fn see(&mut self, targets: &[Target<'_>], file_version: Option<FileVersion>) -> Result<Vec<Option<RowSnapshot>>> {
        lock::see(self, targets, file_version).await
    }

    async fn inbox_ends(&mut self, instances: &[&Instance], most: i64) -> Result<HashMap<InstanceId, Inbox>> {
        lock::inbox_ends(self, instances, most).await
    }

    async fn inbox(&mut self, instance: &Instance, most: i64) -> Result<Vec<Waiting>> {
        Ok(lock::inbox(self, &[instance], most).await?.into_iter().map(|(_, waiting)| waiting).collect())
    }

    async fn last_attempts(&mut self, calls: &[CallId]) -> Result<Vec<Attempt>> {
        lock::last_attempts(self, calls).await
    }

    async fn requests(&mut self, asked: &[(InstanceId, &str)]) -> Result<Vec<(InstanceId, Request)>> {
        lock::requests(self, asked).await
    }

    async fn known(&mut self, calls: &[CallId]) -> Result<Vec<KnownCall>> {
        lock::known(self, calls).await
    }

    async fn has_another_timer(&mut self, instance: InstanceId, beside: TimerId) -> Result<bool> {
        timers::has_another(self, instance, beside).await
    }

    async fn write(&mut self, changes: &[&Changes], is_guest: bool) -> Result<Vec<Written>> {
        match (changes, is_guest && self.is_postgres()) {
            #[cfg(feature = "postgres")]
            ([send], true) if fits(send) => {
                let is_written = write::write_in_one(self, send).await?;
                Ok(vec![if is_written { Written::done(send) } else { Written::Outdated }])
            }
            _ => write::write(self, changes).await,
        }
    }

    #[cfg(feature = "postgres")]
    async fn write_guarded(&mut self, changes: &[(&Changes, Timestamp)]) -> Result<Option<HashSet<InstanceId>>> {
        write::write_single_statement(self, changes).await
    }

    #[cfg(not(feature = "postgres"))]
    async fn write_guarded(&mut self, _changes: &[(&Changes, Timestamp)]) -> Result<Option<HashSet<InstanceId>>> {
        Ok(None)
    }

    async fn write_added(&mut self, changes: &[&Changes]) -> Result<()> {
        write::write_added(self, changes).await
    }

    async fn lines(&mut self, receivers: &[Target<'_>]) -> Result<HashSet<(String, String)>> {
        outbox::lines(self, receivers).await
    }

    async fn line(&mut self, receiver: Target<'_>, limit: u32) -> Result<Vec<InLine>> {
        outbox::line(self, receiver, limit).await
    }

    async fn put_in_outbox(&mut self, events: &[Put<'_>], now: Timestamp) -> Result<()> {
        outbox::put(self, events, now).await
    }

    async fn put_in_partition_outbox(&mut self, events: &[ToPartition<'_>], now: Timestamp) -> Result<()> {
        partition_outbox::put(self, events, now).await
    }

    async fn take_from_outbox(&mut self, calls: &[CallId]) -> Result<bool> {
        outbox::take(self, calls).await
    }

    async fn deliver_again(&mut self, receiver: Target<'_>, due_at: Timestamp, tries: u32) -> Result<()> {
        outbox::again(self, receiver, due_at, tries).await
    }

    async fn unsend(&mut self, sends: &[CallId], now: Timestamp) -> Result<HashMap<CallId, Unsent>> {
        outbox::unsend(self, sends, now).await
    }

    async fn unsend_to_partitions(&mut self, sends: &[CallId]) -> Result<HashMap<CallId, Unsent>> {
        partition_outbox::unsend(self, sends).await
    }

    async fn note_senders(&mut self, notes: &[SenderNote], now: Timestamp) -> Result<()> {
        outbox::note(self, notes, now).await
    }

    async fn child_events(&mut self, parent: InstanceId, limit: u32) -> Result<Vec<ChildEvent>> {
        family::events(self, parent, limit).await
    }

    async fn take_child_events(&mut self, events: &[i64]) -> Result<bool> {
        family::take(self, events).await
    }

    async fn open_children(&mut self, parent: InstanceId) -> Result<OpenChildren> {
        family::open_children(self, parent).await
    }

    async fn put_remote_children(&mut self, children: &[RemoteChild<'_>], now: Timestamp) -> Result<HashSet<CallId>> {
        remote_children::put(self, children, now).await
    }

    async fn remote_to_cancel(&mut self, parent: InstanceId, limit: u32) -> Result<Vec<RemoteToCancel>> {
        remote_children::to_cancel(self, parent, limit).await
    }

    async fn put_traces(&mut self, traces: &[(CallId, InstanceId, TraceContext)]) -> Result<()> {
        traces::put(self, traces).await
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::ConcurrentChange => StoreError::ConcurrentChange,
            Fault::Corrupt { what } => StoreError::Corrupt { what },
        }
    }
}

//! Families: checks whether all children of an instance have ended, and cancels the children of cancelled instances.
//!
//! A child ends in its own commit, which changes nothing of its parent. After that commit, this process asks whether a child of the same
//! group is still open, once for all ends in the meantime, and only the answer "none" costs the parent a commit. Each process asks after
//! its own commits, so that the last one to ask sees all ends. If a process dies before it asks, a sweeper finds the family.

pub(crate) mod changed;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome::ChangedInstance;
use fsm_core::commit::request::{Reply, RequestKind};
use fsm_core::decide::operate::{Act, Operation};
use fsm_core::family::Family;
use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::CHILDREN_ENDED;
use fsm_store::family::{self, FamilyRow};
use futures_util::future::join_all;

use crate::committer::request::Request;
use crate::engine::Engine;
use crate::error::Error;
use changed::FIRST;

/// The number of families that one statement reads.
const READ: usize = 500;
/// The number of families that one run of the sweeper looks at.
const SWEPT: u32 = 10_000;
/// The number of children that are cancelled before other families get their turn.
const CANCELLED: u32 = 250;
/// The wait before a family is looked at again for which an inbox had no room, or whose database failed.
const AGAIN: Duration = Duration::from_millis(200);

impl Engine {
    /// Notes the families that a commit may have changed. A client has no loop that looks at them; the sweeper of a worker finds them.
    pub(crate) fn note_families(&self, moved: &[ChangedInstance], started: &[InstanceId]) {
        if self.work.is_none() {
            return;
        }
        let moved = moved.iter().map(|moved| &moved.instance);
        let is_here = |child: &Arc<Instance>| child.parent.is_some_and(|parent| parent.partition.is_none());
        let ended =
            moved.clone().filter(|child| child.status != Status::Running && is_here(child)).filter_map(|child| Some(child.parent?.id));
        let cancelled = moved.filter(|parent| parent.family == Family::Cancelling).map(|parent| parent.id);
        let mut parents = ended.chain(cancelled).chain(started.iter().copied()).peekable();
        if parents.peek().is_some() {
            self.families.add(parents);
        }
    }

    /// Has a family looked at, because the partition of a child has reported something.
    pub(crate) fn look_at_family_soon(&self, parent: InstanceId) {
        if self.work.is_some() {
            self.families.add([parent]);
        }
    }

    /// Looks at the families that commits of this process changed.
    pub(crate) async fn families_loop(self: Arc<Self>) {
        while self.may_start() {
            // This wait has no limit: there may be no families.
            let parents = self.families.next().await;
            if let Err(error) = self.look_at_families(parents.iter().copied().collect()).await {
                if !self.outage.reports(&error) {
                    tracing::warn!(%error, "families cannot be read, and this is tried again");
                }
                tokio::time::sleep(AGAIN).await;
                self.families.add(parents);
            }
        }
    }

    /// Looks at some of all families that wait, for those that no process looks at any more.
    pub(crate) async fn sweep_families(self: &Arc<Self>) -> Result<usize, Error> {
        let [waiting, with_events] = self.families.swept();
        let parents = {
            let mut reader = self.engine_reader().await?;
            let mut parents = family::from(&mut reader.conn(), waiting, SWEPT).await?;
            let others = family::with_events(&mut reader.conn(), with_events, SWEPT).await?;
            self.families.set_swept([end_of(&parents), end_of(&others)]);
            parents.extend(others);
            parents
        };
        self.look_at_families(parents).await
    }

    /// Looks at these families and at those that changed meanwhile. Returns the number of changes.
    #[cfg(feature = "testing")]
    pub(crate) async fn look_at_all_families(self: &Arc<Self>) -> Result<usize, Error> {
        let changed = self.families.take();
        Ok(self.look_at_families(changed.into_iter().collect()).await? + self.sweep_families().await?)
    }

    async fn look_at_families(self: &Arc<Self>, parents: Vec<InstanceId>) -> Result<usize, Error> {
        let mut changes = 0;
        let mut seen = HashSet::new();
        let parents: Vec<_> = parents.into_iter().filter(|parent| seen.insert(*parent)).collect();
        for some in parents.chunks(READ) {
            let rows = {
                let mut reader = self.engine_reader().await?;
                family::families(&mut reader.conn(), some).await?
            };
            for row in rows {
                changes += match row.family {
                    Family::Cancelling => self.cancel_children(&row).await?,
                    _ if self.needs_event(&row) => usize::from(self.inform_parent(&row).await),
                    _ => 0,
                };
            }
        }
        Ok(changes)
    }

    /// True if an event of its children is to be delivered to the instance, and this process has its machine.
    fn needs_event(&self, row: &FamilyRow) -> bool {
        let Some(known) = self.catalog.get(&row.machine) else { return false };
        let awaits = || known.machine.edge(row.state.as_deref(), CHILDREN_ENDED).is_some() && !row.status.is_ended();
        let all_ended = match row.family {
            Family::Open(_) => !row.has_open_child && awaits(),
            // A busy instance takes the end of its children by itself when it comes to rest.
            Family::Ended(_) => !row.is_busy && row.status == Status::Running && awaits(),
            _ => false,
        };
        all_ended || row.has_events
    }

    /// Requests the delivery of the events from the committer. Returns true if something changed.
    async fn inform_parent(self: &Arc<Self>, row: &FamilyRow) -> bool {
        let target = InstanceKey::new(&row.machine, &row.key);
        match self.request(|reply| Request::new(target, RequestKind::Family, Some(reply))).await {
            Ok(Reply::Family { changed }) => {
                // More events than one commit delivers, or than the inbox has room for, are delivered later.
                if row.has_events {
                    self.queue_again(row.instance);
                }
                changed
            }
            Ok(_) => false,
            Err(error) => {
                if !error.is_stopping() {
                    if !self.outage.reports(&error) {
                        tracing::warn!(machine = row.machine, key = row.key, %error, "the ends of children cannot be delivered to their parent, and this is tried again");
                    }
                    self.queue_again(row.instance);
                }
                false
            }
        }
    }

    fn queue_again(self: &Arc<Self>, instance: InstanceId) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(AGAIN).await;
            engine.families.add([instance]);
        });
    }

    /// Cancels some of the children of a cancelled instance. When none is left, that is recorded for the instance. Returns the number of children.
    async fn cancel_children(self: &Arc<Self>, row: &FamilyRow) -> Result<usize, Error> {
        let children = {
            let mut reader = self.engine_reader().await?;
            family::to_cancel(&mut reader.conn(), row.instance, &self.catalog.names, CANCELLED).await?
        };
        if children.is_empty() {
            let changed = self.inform_parent(row).await;
            if changed && self.partition.is_some() {
                // Children in other partitions are cancelled by notices, some in each commit.
                self.families.add([row.instance]);
            }
            return Ok(usize::from(changed));
        }
        let reason = format!("its parent `{}` `{}` was cancelled", row.machine, row.key.escape_debug());
        let cancelled = join_all(children.iter().map(|(machine, key)| {
            let operation = Operation { act: Act::Cancel, reason: Some(reason.clone()), actor: None, request: None };
            let kind = RequestKind::Operate(Box::new(operation));
            self.request(|reply| Request::new(InstanceKey::new(machine, key), kind, Some(reply)).of_loop())
        }));
        let count = cancelled.await.iter().filter(|cancelled| cancelled.is_ok()).count();
        match count {
            // Every one of them failed, or ended by itself meanwhile.
            0 => self.queue_again(row.instance),
            _ => self.families.add([row.instance]),
        }
        Ok(count)
    }
}

/// The id after which the next run of the sweeper begins.
fn end_of(parents: &[InstanceId]) -> InstanceId {
    if parents.len() == SWEPT as usize { parents.last().copied().unwrap_or(FIRST) } else { FIRST }
}

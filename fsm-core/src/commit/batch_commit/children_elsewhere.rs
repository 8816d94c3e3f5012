//! Children in other partitions than their parents: their start and their cancellation leave the partition of the parent as notices, and take
//! effect in the partition of the child.

use super::children::AT_A_TIME;
use super::outgoing::trace_of;
use super::{BatchCommit, Decided};
use crate::commit::batch_snapshot::BatchSnapshot;
use crate::commit::database::Database;
use crate::commit::environment::Environment;
use crate::commit::family_notice::{ChildStart, FamilyNotice};
use crate::commit::instance_key::InstanceKey;
use crate::commit::outcome::CommitOutcome;
use crate::commit::request::{Reply, Request};
use crate::commit::rows::{RemoteChild, ToPartition};
use crate::decide::family::{Started, start};
use crate::family::{Family, Link};
use crate::ids::CallId;
use crate::machine::Machine;
use crate::outcome::{Child, Event, Outgoing};

impl<E: Environment> BatchCommit<'_, E> {
    /// Writes the rows that stand for these children in the partition of their parents, and the notices that start them. A child that the parent has
    /// started in the same group before is not started again.
    pub(super) async fn start_elsewhere<D: Database>(
        &self,
        db: &mut D,
        batch: &[&Request],
        children: &[(usize, RemoteChild<'_>)],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        let rows: Vec<_> = children.iter().map(|(_, child)| *child).collect();
        let new = db.put_remote_children(&rows, self.now).await?;
        let (mut notices, mut traces) = (Vec::with_capacity(new.len()), Vec::new());
        for (place, RemoteChild { parent, partition, child }) in children.iter().filter(|(_, remote)| new.contains(&remote.child.id)) {
            let InstanceKey { machine, key, .. } = &batch[*place].target;
            let notice = FamilyNotice::Start(ChildStart {
                group: parent.group,
                parent_machine: machine.to_string(),
                parent_key: key.to_string(),
                is_detached: child.is_detached,
                failure_event: child.failure_event.clone(),
            });
            let outgoing =
                Outgoing { priority: child.priority, ..Outgoing::new(child.id, &child.machine, &child.key, child.event.clone()) };
            notices.push((*partition, parent.id, outgoing, notice));
            traces.extend(trace_of(batch[*place]).map(|trace| (child.id, parent.id, trace.clone())));
            commit_outcomes[*place].has_event_elsewhere = true;
        }
        let put = |(partition, sender, outgoing, notice)| ToPartition { partition, sender, outgoing, notice: Some(notice) };
        let rows: Vec<_> =
            notices.iter().map(|(partition, sender, outgoing, notice)| put((*partition, *sender, outgoing, notice))).collect();
        db.put_in_partition_outbox(&rows, self.now).await?;
        db.put_traces(&traces).await
    }

    /// Writes the notices that cancel children in other partitions with this parent, if it is cancelled. They stay behind the notices that start the
    /// same children. Returns true if it wrote any.
    pub(super) async fn cancel_elsewhere<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<bool, D::Error> {
        let parent = &batch_snapshot.snapshot(target).instance;
        if parent.family != Family::Cancelling || !self.environment.has_partitions() {
            return Ok(false);
        }
        let children = db.remote_to_cancel(parent.id, AT_A_TIME).await?;
        let reason = format!("its parent `{}` `{}` was cancelled", target.machine, target.key.escape_debug());
        let notices = children.into_iter().map(|child| {
            let event = Event { name: "Cancel".to_owned(), payload: Vec::new() };
            let outgoing = Outgoing::new(CallId(self.environment.fresh()), &child.machine, &child.key, event);
            (child.partition, outgoing, FamilyNotice::Cancel { group: child.group, reason: reason.clone() })
        });
        let notices: Vec<_> = notices.collect();
        let sender = parent.id;
        let row = |(partition, outgoing, notice)| ToPartition { partition, sender, outgoing, notice: Some(notice) };
        let rows: Vec<_> = notices.iter().map(|(partition, outgoing, notice)| row((*partition, outgoing, notice))).collect();
        db.put_in_partition_outbox(&rows, self.now).await?;
        commit_outcome.has_event_elsewhere |= !rows.is_empty();
        Ok(!rows.is_empty())
    }

    /// Decides the start of a child whose parent is in another partition. A notice that comes again finds the child and changes nothing.
    pub(super) fn decide_start_of_child(
        &self,
        batch_snapshot: &BatchSnapshot,
        machine: &Machine,
        target: &InstanceKey,
        child: &Child,
        link: &Link,
    ) -> Decided<E> {
        let slot = self.slot_for_new_call(&machine.name, child.priority);
        match start(machine, batch_snapshot.snapshot(target), child, link.clone(), self.moment(slot.is_some())) {
            Started::New(changes) => Decided { slot, ..Decided::of(Ok(Reply::Operated), Some(*changes)) },
            Started::Same => Decided::of(Ok(Reply::Operated), None),
            Started::Refused(refusal) => Decided::of(Err(refusal.into()), None),
        }
    }
}

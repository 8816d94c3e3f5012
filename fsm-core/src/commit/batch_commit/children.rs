//! Children: they are started with the transition of their parent, and their ends are delivered to it as events.

use super::outgoing::{succeeded, trace_of};
use super::{BatchCommit, Decided, earlier};
use crate::changes::Changes;
use crate::commit::batch_snapshot::BatchSnapshot;
use crate::commit::database::{Database, Fault};
use crate::commit::environment::Environment;
use crate::commit::instance_key::InstanceKey;
use crate::commit::outcome::CommitOutcome;
use crate::commit::request::{Reply, Report, Request, RequestKind};
use crate::commit::rows::{ChildEvent, RemoteChild};
use crate::decide::family::{Started, all_cancelled, all_ended, start};
use crate::decide::fire::rejected;
use crate::decide::outbox::{Delivery, deliver_in_order};
use crate::decide::refusal::Refusal;
use crate::decide::send::Send;
use crate::family::{Family, Link, Parent};
use crate::instance::Instance;
use crate::outcome::{Child, Outgoing};
use crate::priority::Priority;

/// The maximum number of ends and errors of children that one commit delivers to their parent.
pub(super) const AT_A_TIME: u32 = 250;

impl<E: Environment> BatchCommit<'_, E> {
    /// Returns why a child of a successful verb cannot be started. The attempt fails then.
    pub(super) fn child_that_cannot_start(&self, batch_snapshot: &BatchSnapshot, report: &Report, changes: &Changes) -> Option<Refusal> {
        let parent = parent_of(&changes.instance)?;
        let here = report.outcome.children().iter().filter(|child| self.environment.partition_elsewhere(&child.key).is_none());
        here.into_iter().find_map(|child| match self.start_of(batch_snapshot, child, parent, false) {
            Some(Started::Refused(refusal)) => Some(refusal),
            _ => None,
        })
    }

    /// The start of the child to which the same verb sends this event, if there is one.
    pub(super) fn as_started(
        &self,
        batch_snapshot: &BatchSnapshot,
        report: &Report,
        changes: &Changes,
        sent: &Outgoing,
    ) -> Option<Changes> {
        let child = report.outcome.children().iter().find(|child| (&child.machine, &child.key) == (&sent.machine, &sent.key))?;
        match self.start_of(batch_snapshot, child, parent_of(&changes.instance)?, false)? {
            Started::New(started) => Some(*started),
            Started::Same | Started::Refused(_) => None,
        }
    }

    /// `ctx.child` has checked that this process serves the machine.
    fn start_of(&self, batch_snapshot: &BatchSnapshot, child: &Child, parent: Parent, is_granted: bool) -> Option<Started> {
        let machine = self.environment.machine(&child.machine).ok()?;
        let target = InstanceKey::new(&child.machine, &child.key);
        Some(start(machine, batch_snapshot.snapshot(&target), child, Link::of(child, parent), self.moment(is_granted)))
    }

    /// Starts the children of the verbs that succeeded, in the transaction of their transitions and after them. All of them are written
    /// together.
    pub(super) async fn start_children<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[&Request],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        let all: Vec<_> = succeeded(batch, commit_outcomes)
            .flat_map(|(place, outcome)| outcome.children().iter().map(move |child| (place, child)))
            .collect();
        let (mut targets, mut places, mut decided, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (place, child) in all {
            let Some(parent) = parent_of(&batch_snapshot.snapshot(&batch[place].target).instance) else { continue };
            if let Some(partition) = self.environment.partition_elsewhere(&child.key) {
                elsewhere.push((place, RemoteChild { parent, partition, child }));
                commit_outcomes[place].families.push(parent.id);
                continue;
            }
            let slot = self.slot_for_new_call(&child.machine, child.priority);
            let is_granted = slot.is_some();
            if let Some(Started::New(mut changes)) = self.start_of(batch_snapshot, child, parent, is_granted) {
                changes.traces.extend(trace_of(batch[place]).map(|trace| (child.id, trace.clone())));
                targets.push(InstanceKey::new(&child.machine, &child.key));
                places.push(place);
                decided.push(Decided { slot, made: Some(child.id), ..Decided::of(Ok(Reply::Operated), Some(*changes)) });
            }
            commit_outcomes[place].families.push(parent.id);
        }
        if !elsewhere.is_empty() {
            self.start_elsewhere(db, batch, &elsewhere, commit_outcomes).await?;
        }
        if decided.is_empty() {
            return Ok(());
        }
        let written = self.write(db, batch_snapshot, targets.iter(), decided).await?;
        for (place, one) in places.into_iter().zip(written) {
            if one.reply.is_none() {
                // Another process has just created an instance with the key of the child. The whole batch is decided again.
                return Err(Fault::ConcurrentChange.into());
            }
            let commit_outcome = &mut commit_outcomes[place];
            commit_outcome.moved.extend(one.moved);
            commit_outcome.runs.extend(one.runs);
            commit_outcome.due_at = earlier(commit_outcome.due_at, one.due_at);
        }
        Ok(())
    }

    /// Carries out what follows from the ends of children, for the parents that the batch asks for. The parents are locked, so each of them
    /// gets each event once.
    pub(super) async fn inform_parents<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[&Request],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        for (request, commit_outcome) in batch.iter().zip(commit_outcomes) {
            if let (RequestKind::Family, Some(Ok(Reply::Family { .. }))) = (&request.kind, &commit_outcome.reply) {
                let changed = self.inform_parent(db, batch_snapshot, &request.target, commit_outcome).await?;
                commit_outcome.reply = Some(Ok(Reply::Family { changed }));
            }
        }
        Ok(())
    }

    async fn inform_parent<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<bool, D::Error> {
        let Ok(machine) = self.environment.machine(&target.machine) else { return Ok(false) };
        if batch_snapshot.snapshot(target).is_new {
            return Ok(false);
        }
        let id = batch_snapshot.snapshot(target).instance.id;
        if self.cancel_elsewhere(db, batch_snapshot, target, commit_outcome).await? {
            return Ok(true);
        }
        let (delivered, is_all) = self.deliver_child_events(db, batch_snapshot, target, commit_outcome).await?;
        let open = db.open_children(id).await?;
        let slot = self.slot_for_new_call(&target.machine, Priority::Normal);
        let snapshot = batch_snapshot.snapshot(target);
        let changes = match snapshot.instance.family {
            // The end of all comes after the ends of each.
            Family::Open(_) | Family::Ended(_) if is_all && !open.of_group => all_ended(machine, snapshot, self.moment(slot.is_some())),
            Family::Cancelling if !open.attached => all_cancelled(snapshot),
            _ => None,
        };
        let Some(changes) = changes else { return Ok(delivered > 0) };
        let slot = slot.filter(|_| changes.open.is_some());
        self.write_beside(db, batch_snapshot, target, vec![changes], slot, commit_outcome).await?;
        Ok(true)
    }

    /// Delivers to the parent the ends and errors of children for which its machine has verbs, in their order and as far as its inbox has
    /// room. Returns their number, and true if none is left.
    async fn deliver_child_events<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<(usize, bool), D::Error> {
        let Ok(machine) = self.environment.machine(&target.machine) else { return Ok((0, false)) };
        let id = batch_snapshot.snapshot(target).instance.id;
        let mut events = db.child_events(id, AT_A_TIME).await?;
        let read = events.len();
        // A process whose code has the event judges it.
        events.truncate(events.iter().take_while(|event| machine.has_event(&event.event.name)).count());
        if events.is_empty() {
            return Ok((0, read == 0));
        }
        let slot = self.slot_for_new_call(&target.machine, Priority::Normal);
        let is_granted = slot.is_some();
        let decide = |snapshots: &BatchSnapshot| {
            let sends = events.iter().map(|event| self.of_child(event));
            deliver_in_order(machine, snapshots.snapshot(target), sends, false, self.moments(is_granted))
        };
        let deliveries = batch_snapshot.decide(db, target, decide).await?;
        let (mut delivered, mut taken, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (event, delivery) in events.iter().zip(deliveries) {
            match delivery {
                Delivery::Taken(accepted) => taken.extend(accepted.changes),
                Delivery::Refused(refusal) => refused.push((event.call, refusal)),
                Delivery::Waits => break,
            }
            delivered.push(event.id);
        }
        if !db.take_child_events(&delivered).await? {
            return Err(Fault::ConcurrentChange.into());
        }
        let slot = slot.filter(|_| taken.first().is_some_and(|changes| changes.open.is_some()));
        self.write_delivered(db, batch_snapshot, target, taken, slot, commit_outcome).await?;
        for (call, refusal) in refused {
            let changes = rejected(Instance::clone(&batch_snapshot.snapshot(target).instance), call, &refusal, self.now);
            self.write_beside(db, batch_snapshot, target, vec![changes], None, commit_outcome).await?;
        }
        Ok((delivered.len(), delivered.len() == read && read < AT_A_TIME as usize))
    }

    fn of_child(&self, event: &ChildEvent) -> Send {
        Send::new(event.call, event.event.clone(), self.environment.inbox_limit())
    }
}

/// The parent of children that are started with this row of it.
fn parent_of(instance: &Instance) -> Option<Parent> {
    Some(Parent { id: instance.id, group: instance.family.group()?, partition: None })
}

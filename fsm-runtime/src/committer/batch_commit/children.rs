//! Children: they are started with the transition of their parent, and their ends are delivered to it as events.

use fsm_core::changes::Changes;
use fsm_core::decide::family::{Started, all_cancelled, all_ended, start};
use fsm_core::decide::fire::rejected;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::outbox::{Delivery, deliver_in_order};
use fsm_core::decide::refusal::Refusal;
use fsm_core::decide::send::Send;
use fsm_core::family::{Child, Family, Parent};
use fsm_core::instance::Instance;
use fsm_core::outcome::Outgoing;
use fsm_core::priority::Priority;

use super::outgoing::{succeeded, trace_of};
use super::{BatchCommit, Decided, earlier};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::{InstanceKey, Reply, Report, Request, RequestKind};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::family::{self, ChildEvent};

/// The maximum number of ends and errors of children that one commit delivers to their parent.
const AT_A_TIME: u32 = 250;

impl BatchCommit<'_> {
    /// Returns why a child of a successful verb cannot be started. The attempt fails then.
    pub(super) fn child_that_cannot_start(&self, batch_snapshot: &BatchSnapshot, report: &Report, changes: &Changes) -> Option<Refusal> {
        let parent = parent_of(&changes.instance)?;
        report.outcome.children().iter().find_map(|child| match self.start_of(batch_snapshot, child, parent, false) {
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
        let known = self.engine.catalog.expect(&child.machine).ok()?;
        let target = InstanceKey::new(&child.machine, &child.key);
        Some(start(&known.machine, batch_snapshot.snapshot(&target), child, parent, self.moment(is_granted)))
    }

    /// Starts the children of the verbs that succeeded, in the transaction of their transitions and after them. All of them are written
    /// together.
    pub(super) async fn start_children(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[Request],
        commit_outcomes: &mut [CommitOutcome],
    ) -> Result<(), StoreError> {
        let all: Vec<_> = succeeded(batch, commit_outcomes)
            .flat_map(|(place, outcome)| outcome.children().iter().map(move |child| (place, child)))
            .collect();
        let (mut targets, mut places, mut decided) = (Vec::new(), Vec::new(), Vec::new());
        for (place, child) in all {
            let Some(parent) = parent_of(&batch_snapshot.snapshot(&batch[place].target).instance) else { continue };
            let permit = self.free_slot(&child.machine, child.priority);
            let is_granted = permit.is_some();
            if let Some(Started::New(mut changes)) = self.start_of(batch_snapshot, child, parent, is_granted) {
                changes.traces.extend(trace_of(&batch[place]).map(|trace| (child.id, trace.clone())));
                targets.push(InstanceKey::new(&child.machine, &child.key));
                places.push(place);
                decided.push(Decided { permit, made: Some(child.id), ..Decided::of(Ok(Reply::Operated), Some(*changes)) });
            }
            commit_outcomes[place].families.push(parent.id);
        }
        if decided.is_empty() {
            return Ok(());
        }
        let written = self.write(conn, batch_snapshot, targets.iter(), decided).await?;
        for (place, one) in places.into_iter().zip(written) {
            if one.reply.is_none() {
                // Another process has just created an instance with the key of the child. The whole batch is decided again.
                return Err(StoreError::Overtaken);
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
    pub(super) async fn inform_parents(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[Request],
        commit_outcomes: &mut [CommitOutcome],
    ) -> Result<(), StoreError> {
        for (request, commit_outcome) in batch.iter().zip(commit_outcomes) {
            if let (RequestKind::Family, Some(Ok(Reply::Family { .. }))) = (&request.kind, &commit_outcome.reply) {
                let changed = self.inform_parent(conn, batch_snapshot, &request.target, commit_outcome).await?;
                commit_outcome.reply = Some(Ok(Reply::Family { changed }));
            }
        }
        Ok(())
    }

    async fn inform_parent(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome,
    ) -> Result<bool, StoreError> {
        let Ok(known) = self.engine.catalog.expect(&target.machine) else { return Ok(false) };
        if batch_snapshot.snapshot(target).is_new {
            return Ok(false);
        }
        let id = batch_snapshot.snapshot(target).instance.id;
        let (delivered, is_all) = self.deliver_child_events(conn, batch_snapshot, target, commit_outcome).await?;
        let open = family::open_children(conn, id).await?;
        let permit = self.free_slot(&target.machine, Priority::Normal);
        let snapshot = batch_snapshot.snapshot(target);
        let changes = match snapshot.instance.family {
            // The end of all comes after the ends of each.
            Family::Open(_) | Family::Ended(_) if is_all && !open.of_group => {
                all_ended(&known.machine, snapshot, self.moment(permit.is_some()))
            }
            Family::Cancelling if !open.attached => all_cancelled(snapshot),
            _ => None,
        };
        let Some(changes) = changes else { return Ok(delivered > 0) };
        let permit = permit.filter(|_| changes.open.is_some());
        self.write_beside(conn, batch_snapshot, target, vec![changes], permit, commit_outcome).await?;
        Ok(true)
    }

    /// Delivers to the parent the ends and errors of children for which its machine has verbs, in their order and as far as its inbox has
    /// room. Returns their number, and true if none is left.
    async fn deliver_child_events(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome,
    ) -> Result<(usize, bool), StoreError> {
        let Ok(known) = self.engine.catalog.expect(&target.machine) else { return Ok((0, false)) };
        let id = batch_snapshot.snapshot(target).instance.id;
        let mut events = family::events(conn, id, AT_A_TIME).await?;
        let read = events.len();
        // A process whose code has the event judges it.
        events.truncate(events.iter().take_while(|event| known.machine.has_event(&event.event.name)).count());
        if events.is_empty() {
            return Ok((0, read == 0));
        }
        let permit = self.free_slot(&target.machine, Priority::Normal);
        let deliveries = loop {
            // A slot is for one call, and only the first event can start one.
            let mut may_begin = permit.is_some();
            let moment = || self.moment(std::mem::take(&mut may_begin));
            let sends = events.iter().map(|event| self.of_child(event));
            match deliver_in_order(&known.machine, batch_snapshot.snapshot(target), sends, false, moment) {
                Ok(deliveries) => break deliveries,
                Err(NeedsMoreRows) => batch_snapshot.read_on(conn, target).await?,
            }
        };
        let (mut delivered, mut taken, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (event, delivery) in events.iter().zip(deliveries) {
            match delivery {
                Delivery::Taken(accepted) => taken.extend(accepted.changes),
                Delivery::Refused(refusal) => refused.push((event.call, refusal)),
                Delivery::Waits => break,
            }
            delivered.push(event.id);
        }
        if !family::take(conn, &delivered).await? {
            return Err(StoreError::Overtaken);
        }
        let permit = permit.filter(|_| taken.first().is_some_and(|changes| changes.open.is_some()));
        self.write_delivered(conn, batch_snapshot, target, taken, permit, commit_outcome).await?;
        for (call, refusal) in refused {
            let changes = rejected(Instance::clone(&batch_snapshot.snapshot(target).instance), call, &refusal, self.now);
            self.write_beside(conn, batch_snapshot, target, vec![changes], None, commit_outcome).await?;
        }
        Ok((delivered.len(), delivered.len() == read && read < AT_A_TIME as usize))
    }

    fn of_child(&self, event: &ChildEvent) -> Send {
        Send::new(event.call, event.event.clone(), self.engine.limits.inbox)
    }
}

/// The parent of children that are started with this row of it.
fn parent_of(instance: &Instance) -> Option<Parent> {
    Some(Parent { id: instance.id, group: instance.family.group()? })
}

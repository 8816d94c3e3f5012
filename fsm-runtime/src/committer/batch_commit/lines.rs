//! The delivery of events that wait in the outbox. One commit delivers as many events of a line as the receiver has room for.

use fsm_core::changes::{Changes, NoteKind};
use fsm_core::decide::fire::rejected;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::decide::outbox::{backoff, deliver_line};
use fsm_core::decide::send::Send;
use fsm_core::instance::Instance;
use fsm_core::priority::Priority;
use tokio::sync::OwnedSemaphorePermit;

use super::BatchCommit;
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::{ChangedInstance, CommitOutcome};
use crate::committer::request::{InstanceKey, Reply, Request, RequestKind};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::lock::Target;
use crate::store::outbox::{self, InLine, SenderNote};
use crate::store::write::write_added;

/// The maximum number of events of a line that one commit delivers.
const AT_A_TIME: u32 = 250;

impl BatchCommit<'_> {
    /// Delivers the lines that the batch asks for. Their receivers are locked, so no other transaction delivers to them or adds to their
    /// lines.
    pub(super) async fn deliver_lines(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[Request],
        commit_outcomes: &mut [CommitOutcome],
    ) -> Result<(), StoreError> {
        for (request, commit_outcome) in batch.iter().zip(commit_outcomes) {
            if let (RequestKind::Deliver, Some(Ok(Reply::Delivered { .. }))) = (&request.kind, &commit_outcome.reply) {
                let events = self.deliver_line(conn, batch_snapshot, &request.target, commit_outcome).await?;
                commit_outcome.reply = Some(Ok(Reply::Delivered { events }));
            }
        }
        Ok(())
    }

    async fn deliver_line(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome,
    ) -> Result<u32, StoreError> {
        let Ok(known) = self.engine.catalog.expect(&target.machine) else { return Ok(0) };
        let receiver = Target { machine: &target.machine, key: &target.key };
        let line = outbox::line(conn, receiver, AT_A_TIME).await?;
        let Some(first) = line.first() else { return Ok(0) };
        let permit = self.free_slot(Priority::Normal);
        let delivered = loop {
            // A slot is for one call, and only the first event can start one.
            let mut may_begin = permit.is_some();
            let moment = || self.moment(std::mem::take(&mut may_begin));
            match deliver_line(&known.machine, batch_snapshot.snapshot(target), line.iter().map(|one| self.in_line(one)), moment) {
                Ok(delivered) => break delivered,
                Err(NeedsMoreRows) => batch_snapshot.read_on(conn, target).await?,
            }
        };
        let calls: Vec<_> = delivered.iter().map(|one| one.call).collect();
        if !outbox::take(conn, &calls).await? {
            return Err(StoreError::Overtaken);
        }
        let (mut changes, mut refusals) = (Vec::new(), Vec::new());
        for (one, waited) in delivered.into_iter().zip(&line) {
            match one.outcome {
                Ok(change) => changes.push(change),
                Err(refusal) => refusals.push((waited, refusal)),
            }
        }
        let permit = permit.filter(|_| changes.first().is_some_and(|changes| changes.open.is_some()));
        self.write_delivered(conn, batch_snapshot, target, changes, permit, commit_outcome).await?;

        let exists = !batch_snapshot.snapshot(target).is_new;
        let mut notes = Vec::with_capacity(refusals.len());
        for (InLine { call, event, sender, .. }, refusal) in refusals {
            tracing::warn!(machine = %target.machine, key = %target.key, event = event.name, %refusal, "an event of the outbox was refused");
            if exists {
                let changes = rejected(Instance::clone(&batch_snapshot.snapshot(target).instance), *call, &refusal, self.now);
                self.write_beside(conn, batch_snapshot, target, vec![changes], None, commit_outcome).await?;
            }
            // If the receiver does not exist, the refusal is recorded only in the sender's history.
            let kind = if exists { NoteKind::Refused } else { NoteKind::Rejected };
            notes.push(SenderNote { sender: *sender, kind, call: *call, detail: refusal.to_string() });
        }
        outbox::note(conn, &notes, self.now).await?;

        let (how_many, is_all) = (calls.len(), calls.len() == line.len());
        if !is_all || line.len() == AT_A_TIME as usize {
            // A line that made progress is tried again after the shortest backoff, and at once if all the events of this batch found room.
            let tries = if how_many == 0 { first.tries.saturating_add(1) } else { 0 };
            let due_at = if is_all { self.now } else { self.now + backoff(tries) };
            outbox::again(conn, receiver, due_at, tries).await?;
            commit_outcome.has_line = true;
        }
        Ok(u32::try_from(how_many).unwrap_or(u32::MAX))
    }

    /// Writes the changes of delivered events. The first event may start a call. The others are written together if they only join the
    /// inbox.
    pub(super) async fn write_delivered(
        &self,
        conn: &mut Conn<'_>,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        mut changes: Vec<Changes>,
        permit: Option<OwnedSemaphorePermit>,
        commit_outcome: &mut CommitOutcome,
    ) -> Result<(), StoreError> {
        let others = changes.split_off(changes.len().min(1));
        let is_joined = others.len() > 1 && others.iter().all(Changes::only_adds);
        self.write_beside(conn, batch_snapshot, target, changes, permit, commit_outcome).await?;
        if !is_joined {
            return self.write_beside(conn, batch_snapshot, target, others, None, commit_outcome).await;
        }
        write_added(conn, &others.iter().collect::<Vec<_>>()).await?;
        others.into_iter().for_each(|changes| batch_snapshot.apply(target, changes));
        let snapshot = batch_snapshot.snapshot(target);
        let (instance, has_timer) = (snapshot.instance.clone(), snapshot.has_timer);
        let newest = snapshot.newest.clone();
        commit_outcome.moved.push(ChangedInstance { target: target.clone(), instance, newest, has_timer, row_version: None });
        Ok(())
    }

    fn in_line(&self, waited: &InLine) -> Send {
        Send { priority: waited.priority, ..Send::new(waited.call, waited.event.clone(), self.engine.limits.inbox) }
    }
}

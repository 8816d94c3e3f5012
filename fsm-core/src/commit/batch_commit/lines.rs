//! The delivery of events that wait in the outbox. One commit delivers as many events of a line as the receiver has room for.

use super::BatchCommit;
use crate::changes::{Changes, NoteKind};
use crate::commit::batch_snapshot::BatchSnapshot;
use crate::commit::database::{Database, Fault};
use crate::commit::environment::Environment;
use crate::commit::instance_key::InstanceKey;
use crate::commit::outcome::{ChangedInstance, CommitOutcome, RejectedEvent};
use crate::commit::request::{Reply, Request, RequestKind};
use crate::commit::rows::{InLine, SenderNote, Target};
use crate::decide::fire::rejected;
use crate::decide::outbox::{backoff, deliver_line};
use crate::decide::send::Send;
use crate::instance::Instance;

/// The maximum number of events of a line that one commit delivers.
const AT_A_TIME: u32 = 250;

impl<E: Environment> BatchCommit<'_, E> {
    /// Delivers the lines that the batch asks for. Their receivers are locked, so no other transaction delivers to them or adds to their
    /// lines.
    pub(super) async fn deliver_lines<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[&Request],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        for (request, commit_outcome) in batch.iter().zip(commit_outcomes) {
            if let (RequestKind::Deliver, Some(Ok(Reply::Delivered { .. }))) = (&request.kind, &commit_outcome.reply) {
                let events = self.deliver_line(db, batch_snapshot, &request.target, commit_outcome).await?;
                commit_outcome.reply = Some(Ok(Reply::Delivered { events }));
            }
        }
        Ok(())
    }

    async fn deliver_line<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<u32, D::Error> {
        let Ok(machine) = self.environment.machine(&target.machine) else { return Ok(0) };
        let receiver = Target { machine: &target.machine, key: &target.key };
        let line = db.line(receiver, AT_A_TIME).await?;
        let Some(first) = line.first() else { return Ok(0) };
        let slot = self.slot_for_new_call(&target.machine, first.priority);
        let is_granted = slot.is_some();
        let decide = |snapshots: &BatchSnapshot| {
            let sends = line.iter().map(|one| self.in_line(one));
            deliver_line(machine, snapshots.snapshot(target), sends, self.moments(is_granted))
        };
        let delivered = batch_snapshot.decide(db, target, decide).await?;
        let calls: Vec<_> = delivered.iter().map(|one| one.call).collect();
        if !db.take_from_outbox(&calls).await? {
            return Err(Fault::ConcurrentChange.into());
        }
        let (mut changes, mut refusals) = (Vec::new(), Vec::new());
        for (one, waited) in delivered.into_iter().zip(&line) {
            match one.outcome {
                Ok(change) => changes.push(change),
                Err(refusal) => refusals.push((waited, refusal)),
            }
        }
        let slot = slot.filter(|_| changes.first().is_some_and(|changes| changes.open.is_some()));
        self.write_delivered(db, batch_snapshot, target, changes, slot, commit_outcome).await?;

        let exists = !batch_snapshot.snapshot(target).is_new;
        let mut notes = Vec::with_capacity(refusals.len());
        for (InLine { call, event, sender, .. }, refusal) in refusals {
            if exists {
                let changes = rejected(Instance::clone(&batch_snapshot.snapshot(target).instance), *call, &refusal, self.now);
                self.write_beside(db, batch_snapshot, target, vec![changes], None, commit_outcome).await?;
            }
            // If the receiver does not exist, the refusal is recorded only in the sender's history.
            let kind = if exists { NoteKind::Refused } else { NoteKind::Rejected };
            notes.push(SenderNote { sender: *sender, kind, call: *call, detail: refusal.to_string() });
            let event = event.name.clone();
            commit_outcome.rejected.push(RejectedEvent { target: target.clone(), event, call: *call, refusal });
        }
        db.note_senders(&notes, self.now).await?;

        let (how_many, is_all) = (calls.len(), calls.len() == line.len());
        if !is_all || line.len() == AT_A_TIME as usize {
            // A line that made progress is tried again after the shortest backoff, and at once if all the events of this batch found room.
            let tries = if how_many == 0 { first.tries.saturating_add(1) } else { 0 };
            let due_at = if is_all { self.now } else { self.now + backoff(tries) };
            db.deliver_again(receiver, due_at, tries).await?;
            commit_outcome.has_line = true;
        }
        Ok(u32::try_from(how_many).unwrap_or(u32::MAX))
    }

    /// Writes the changes of delivered events. The first event may start a call. The others are written together if they only join the
    /// inbox.
    pub(super) async fn write_delivered<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        mut changes: Vec<Changes>,
        slot: Option<E::Slot>,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<(), D::Error> {
        let others = changes.split_off(changes.len().min(1));
        let is_joined = others.len() > 1 && others.iter().all(Changes::only_adds);
        self.write_beside(db, batch_snapshot, target, changes, slot, commit_outcome).await?;
        if !is_joined {
            return self.write_beside(db, batch_snapshot, target, others, None, commit_outcome).await;
        }
        db.write_added(&others.iter().collect::<Vec<_>>()).await?;
        others.into_iter().for_each(|changes| batch_snapshot.apply(target, changes));
        let snapshot = batch_snapshot.snapshot(target);
        let (instance, has_timer) = (snapshot.instance.clone(), snapshot.has_timer);
        let newest = snapshot.newest.clone();
        commit_outcome.moved.push(ChangedInstance { target: target.clone(), instance, newest, has_timer, row_version: None });
        Ok(())
    }

    fn in_line(&self, waited: &InLine) -> Send {
        Send { priority: waited.priority, ..Send::new(waited.call, waited.event.clone(), self.environment.inbox_limit()) }
    }
}

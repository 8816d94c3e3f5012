//! The events that a verb sends to other instances, decided like any other send, and the delayed sends that a verb cancels. An event waits
//! in the outbox if the receiver has no room for it.

use std::collections::HashSet;
use std::sync::Arc;

use super::{BatchCommit, Decided, earlier};
use crate::changes::{Changes, NoteKind};
use crate::commit::batch_snapshot::BatchSnapshot;
use crate::commit::database::{Database, Fault};
use crate::commit::environment::Environment;
use crate::commit::instance_key::InstanceKey;
use crate::commit::outcome::{CommitOutcome, RejectedEvent};
use crate::commit::request::{Reply, Report, Request, RequestKind};
use crate::commit::rows::{Put, SenderNote, Target, ToPartition, Unsent};
use crate::decide::fire::rejected;
use crate::decide::inbox::NeedsMoreRows;
use crate::decide::outbox::{Delivery, InboxUnread, Outbound, backoff, deliver_in_order, refused_required};
use crate::decide::refusal::Refusal;
use crate::decide::send::Send;
use crate::ids::{CallId, InstanceId};
use crate::instance::Instance;
use crate::outcome::{Outcome, Outgoing, Problem};
use crate::retry::RetryAdvice;
use crate::trace::TraceContext;

/// An event that a verb sends, with the position of its request in the batch.
type Sent<'b> = (usize, &'b Outgoing);

/// The rows that the outgoing events of a batch need beside the changes of their receivers.
struct OutgoingRows<'b> {
    /// The machines and the keys of the receivers that have a line in the outbox.
    lines: HashSet<(String, String)>,
    /// The events that wait in the outbox.
    waiting: Vec<Put<'b>>,
    /// The events for instances of other partitions.
    elsewhere: Vec<ToPartition<'b>>,
    /// The notes in the histories of the senders.
    notes: Vec<SenderNote>,
    /// The trace contexts of the events that wait.
    traces: Vec<(CallId, InstanceId, TraceContext)>,
}

impl<E: Environment> BatchCommit<'_, E> {
    /// Returns the decision about a report. If a receiver refuses a required event, or a child cannot be started, the attempt counts as failed
    /// and is retried by its policy.
    pub(super) async fn with_required<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        request: &Request,
        decided: Decided<E>,
    ) -> Result<Decided<E>, D::Error> {
        let (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true })), Some(changes)) =
            (&request.kind, &decided.reply, &decided.changes)
        else {
            return Ok(decided);
        };
        if !report.outcome.sends().iter().any(|outgoing| outgoing.is_required) && report.outcome.children().is_empty() {
            return Ok(decided);
        }
        let not_started = self.child_that_cannot_start(batch_snapshot, report, changes);
        let refused = not_started.map(|refusal| format!("a child cannot be started: {refusal}"));
        let refused = refused.or_else(|| self.required_elsewhere(report));
        let refusal = loop {
            match self.refused_required(batch_snapshot, report, changes) {
                Ok(refusal) => break refusal,
                Err(InboxUnread(receiver)) => {
                    let target = batch_snapshot.name(receiver).clone();
                    batch_snapshot.read_on(db, &target).await?;
                }
            }
        };
        let refused = refused.or_else(|| refusal.map(|refusal| format!("a required event that the verb sent was refused: {refusal}")));
        let Some(refused) = refused else { return Ok(decided) };
        let problem = Problem::new(&refused, RetryAdvice::Default);
        let failed = Report {
            outcome: Outcome::Failure(problem.clone()),
            attempt: Arc::clone(&report.attempt),
            has_slot: false,
            fresh: CallId(self.environment.fresh()),
            trace: report.trace.clone(),
        };
        let Ok(machine) = self.environment.machine(&request.target.machine) else { return Ok(decided) };
        let decide = |snapshots: &BatchSnapshot| self.decide_complete(snapshots, machine, request, &failed);
        let failed = batch_snapshot.decide(db, &request.target, decide).await?;
        let mut failed = Decided { refused: Some(problem), ..failed };
        if let Some(changes) = &mut failed.changes {
            changes.traces.extend(report.trace.clone().map(|trace| (report.attempt.call, trace)));
        }
        Ok(failed)
    }

    /// Why a required event cannot be sent: the receiver's answer is known only after this commit if it belongs to another partition.
    fn required_elsewhere(&self, report: &Report) -> Option<String> {
        let mut required = report.outcome.sends().iter().filter(|outgoing| outgoing.is_required);
        let (outgoing, partition) = required.find_map(|outgoing| Some((outgoing, self.environment.partition_elsewhere(&outgoing.key)?)))?;
        let Outgoing { machine, key, event, .. } = outgoing;
        let (key, event) = (key.escape_debug(), &event.name);
        Some(format!(
            "the event `{event}` to `{machine}` `{key}` is required, and the receiver belongs to partition {partition}: only a receiver in the \
             same partition can refuse it in this commit; give both keys the same tag, as in `{{tenant}}-…`"
        ))
    }

    fn refused_required(&self, batch_snapshot: &BatchSnapshot, report: &Report, changes: &Changes) -> Result<Option<Refusal>, InboxUnread> {
        let all = in_order(report.outcome.sends().iter().map(|outgoing| (0, outgoing)));
        let all = all.into_iter().filter_map(|(_, outgoing)| {
            if self.environment.partition_elsewhere(&outgoing.key).is_some() {
                return None;
            }
            let machine = self.environment.machine(&outgoing.machine).ok()?;
            let mut receiver = batch_snapshot.snapshot(&InstanceKey::new(&outgoing.machine, &outgoing.key)).clone();
            if receiver.is_new
                && let Some(started) = self.as_started(batch_snapshot, report, changes, outgoing)
            {
                receiver.apply(started);
            }
            if receiver.instance.id == changes.instance.id {
                receiver.apply(changes.clone());
            }
            Some(Outbound { machine, receiver, send: self.delivery(outgoing), is_required: outgoing.is_required })
        });
        refused_required(all, self.moment(false))
    }

    /// Delivers the events that verbs sent to other instances, in the transaction of the verb's own transition and after it. An event waits
    /// in the outbox if the receiver has no room for it. A refusal is recorded in the histories of the sender and of the receiver.
    pub(super) async fn send_outgoing<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        batch: &[&Request],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        let all =
            in_order(succeeded(batch, commit_outcomes).flat_map(|(place, outcome)| outcome.sends().iter().map(move |sent| (place, sent))));
        if all.is_empty() {
            return Ok(());
        }
        let receivers: HashSet<_> = all.iter().map(|(_, sent)| Target { machine: &sent.machine, key: &sent.key }).collect();
        let lines = db.lines(&receivers.into_iter().collect::<Vec<_>>()).await?;
        let mut rows = OutgoingRows { lines, waiting: Vec::new(), elsewhere: Vec::new(), notes: Vec::new(), traces: Vec::new() };
        // No two requests of a batch touch the same receiver, so all events for one receiver have the same sender.
        for to_one in all.chunk_by(|(_, one), (_, other)| (&one.machine, &one.key) == (&other.machine, &other.key)) {
            let (place, first) = to_one[0];
            let commit_outcome = &mut commit_outcomes[place];
            match self.environment.partition_elsewhere(&first.key) {
                Some(partition) => self.send_elsewhere(batch_snapshot, batch[place], partition, to_one, &mut rows, commit_outcome),
                None => self.send_to_one(db, batch_snapshot, batch[place], to_one, &mut rows, commit_outcome).await?,
            }
        }
        db.put_in_outbox(&rows.waiting, self.now).await?;
        if !rows.elsewhere.is_empty() {
            db.put_in_partition_outbox(&rows.elsewhere, self.now).await?;
        }
        db.put_traces(&rows.traces).await?;
        db.note_senders(&rows.notes, self.now).await
    }

    /// Adds the events of one sender to a receiver in another partition to `rows`. A worker delivers them after this commit.
    fn send_elsewhere<'b>(
        &self,
        batch_snapshot: &BatchSnapshot,
        request: &Request,
        partition: u32,
        to_one: &[Sent<'b>],
        rows: &mut OutgoingRows<'b>,
        commit_outcome: &mut CommitOutcome<E>,
    ) {
        let (sender, trace) = (batch_snapshot.snapshot(&request.target).instance.id, trace_of(request));
        for (_, outgoing) in to_one {
            rows.elsewhere.push(ToPartition { partition, sender, outgoing, notice: None });
            rows.traces.extend(trace.map(|trace| (outgoing.id, sender, trace.clone())));
        }
        commit_outcome.has_event_elsewhere = true;
    }

    /// Delivers the events of one sender to one receiver. The rows of those that wait or are refused are added to `rows`.
    async fn send_to_one<'b, D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        request: &Request,
        to_one: &[Sent<'b>],
        rows: &mut OutgoingRows<'b>,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<(), D::Error> {
        let first = to_one[0].1;
        let (sender, target, trace) = (&request.target, InstanceKey::new(&first.machine, &first.key), trace_of(request));
        let mut has_line = rows.lines.contains(&(first.machine.clone(), first.key.clone()));
        let slot = self.slot_for_new_call(&target.machine, first.priority);
        let is_granted = slot.is_some();
        let decide = |snapshots: &BatchSnapshot| self.deliver(snapshots, &target, to_one, has_line, is_granted);
        let deliveries = batch_snapshot.decide(db, &target, decide).await?;
        let sender_id = batch_snapshot.snapshot(sender).instance.id;
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        for (delivery, (_, outgoing)) in deliveries.into_iter().zip(to_one) {
            match delivery {
                Delivery::Taken(accepted) => taken.extend(accepted.changes.map(|mut changes| {
                    changes.traces.extend(trace.map(|trace| (outgoing.id, trace.clone())));
                    changes
                })),
                Delivery::Waits => {
                    let due_at = (!std::mem::replace(&mut has_line, true)).then(|| self.now + backoff(0));
                    rows.waiting.push(Put { sender: sender_id, outgoing, due_at });
                    rows.traces.extend(trace.map(|trace| (outgoing.id, sender_id, trace.clone())));
                    commit_outcome.has_line = true;
                }
                Delivery::Refused(refusal) => refused.push((*outgoing, refusal)),
            }
        }
        let slot = slot.filter(|_| taken.first().is_some_and(|changes| changes.open.is_some()));
        self.write_delivered(db, batch_snapshot, &target, taken, slot, commit_outcome).await?;
        for (outgoing, refusal) in refused {
            // If the receiver does not exist, the refusal is recorded only in the sender's history.
            let keeper = if batch_snapshot.snapshot(&target).is_new { sender } else { &target };
            let changes = rejected(Instance::clone(&batch_snapshot.snapshot(keeper).instance), outgoing.id, &refusal, self.now);
            if keeper != sender {
                rows.notes.push(SenderNote { sender: sender_id, kind: NoteKind::Refused, call: outgoing.id, detail: refusal.to_string() });
            }
            self.write_beside(db, batch_snapshot, keeper, vec![changes], None, commit_outcome).await?;
            let event = outgoing.event.name.clone();
            commit_outcome.rejected.push(RejectedEvent { target: target.clone(), event, call: outgoing.id, refusal });
        }
        Ok(())
    }

    fn deliver(
        &self,
        batch_snapshot: &BatchSnapshot,
        target: &InstanceKey,
        sends: &[Sent<'_>],
        has_line: bool,
        is_granted: bool,
    ) -> Result<Vec<Delivery>, NeedsMoreRows> {
        // `ctx.send` has checked the name of the machine. If this process does not run that machine, one that does takes the events from
        // the outbox.
        let Ok(machine) = self.environment.machine(&target.machine) else { return Ok(vec![Delivery::Waits; sends.len()]) };
        let requests = sends.iter().map(|(_, outgoing)| self.delivery(outgoing));
        deliver_in_order(machine, batch_snapshot.snapshot(target), requests, has_line, self.moments(is_granted))
    }

    /// Writes further changes to one instance in the transaction of a request, each decided on the one before. Their consequences are added
    /// to those of the request.
    pub(super) async fn write_beside<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &mut BatchSnapshot,
        target: &InstanceKey,
        changes: Vec<Changes>,
        mut slot: Option<E::Slot>,
        commit_outcome: &mut CommitOutcome<E>,
    ) -> Result<(), D::Error> {
        for changes in changes {
            let decided = Decided { slot: slot.take(), ..Decided::of(Ok(Reply::Operated), Some(changes)) };
            let one = self.write(db, batch_snapshot, std::iter::once(target), vec![decided]).await?.remove(0);
            if one.reply.is_none() {
                // Another process has just created the receiver. The whole batch is decided again.
                return Err(Fault::ConcurrentChange.into());
            }
            commit_outcome.moved.extend(one.moved);
            commit_outcome.runs.extend(one.runs);
            commit_outcome.interrupted.extend(one.interrupted);
            commit_outcome.due_at = earlier(commit_outcome.due_at, one.due_at);
        }
        Ok(())
    }

    /// Cancels delayed sends for verbs. A send that was delivered already stays delivered. The sender's history records which of the two
    /// happened.
    pub(super) async fn unsend<D: Database>(
        &self,
        db: &mut D,
        batch_snapshot: &BatchSnapshot,
        batch: &[&Request],
        commit_outcomes: &mut [CommitOutcome<E>],
    ) -> Result<(), D::Error> {
        let all: Vec<_> = succeeded(batch, commit_outcomes)
            .flat_map(|(place, outcome)| outcome.unsends().iter().map(move |call| (place, *call)))
            .collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut calls: Vec<_> = all.iter().map(|(_, call)| *call).collect();
        calls.sort();
        calls.dedup();
        let mut unsent = db.unsend(&calls, self.now).await?;
        if self.environment.has_partitions() {
            unsent.extend(db.unsend_to_partitions(&calls).await?);
        }
        let mut notes = Vec::with_capacity(all.len());
        for (place, call) in all {
            let commit_outcome = &mut commit_outcomes[place];
            commit_outcome.due_at = earlier(commit_outcome.due_at, unsent.contains_key(&call).then_some(self.now));
            let detail = match unsent.get(&call) {
                Some(Unsent { receiver: Some((machine, key)), event }) => {
                    format!("`{event}` to `{machine}` `{}` is not delivered", key.escape_debug())
                }
                Some(Unsent { receiver: None, event }) => format!("`{event}` is not delivered"),
                None => "the event was delivered already, and stays delivered".to_owned(),
            };
            let sender = batch_snapshot.snapshot(&batch[place].target).instance.id;
            notes.push(SenderNote { sender, kind: NoteKind::Unsent, call, detail });
        }
        db.note_senders(&notes, self.now).await
    }

    fn delivery(&self, outgoing: &Outgoing) -> Send {
        let Outgoing { id, event, deliver_at, search, priority, .. } = outgoing;
        Send {
            deliver_at: *deliver_at,
            search: search.clone(),
            priority: *priority,
            ..Send::new(*id, event.clone(), self.environment.inbox_limit())
        }
    }
}

/// The trace context of the attempt that a request reports.
pub(super) fn trace_of(request: &Request) -> Option<&TraceContext> {
    match &request.kind {
        RequestKind::Complete(report) => report.trace.as_ref(),
        _ => None,
    }
}

/// Returns the outcomes of the attempts of a batch that succeeded, with the positions of their requests.
pub(super) fn succeeded<'b, E: Environment>(
    batch: &[&'b Request],
    commit_outcomes: &[CommitOutcome<E>],
) -> impl Iterator<Item = (usize, &'b Outcome)> {
    batch.iter().zip(commit_outcomes).enumerate().filter_map(|(place, (request, commit_outcome))| {
        match (&request.kind, &commit_outcome.reply, &commit_outcome.refused) {
            (RequestKind::Complete(report), Some(Ok(Reply::Completed { counted: true })), None) => Some((place, &report.outcome)),
            _ => None,
        }
    })
}

/// Sorts the sends by receiver, so that two commits that create the same receivers do not deadlock. The events of one sender to one
/// receiver keep their order.
fn in_order<'b>(all: impl Iterator<Item = Sent<'b>>) -> Vec<Sent<'b>> {
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, outgoing)| (&outgoing.machine, &outgoing.key));
    all
}

//! The outbox as values, and the delivery of a line, mirroring `store/outbox.rs` and `committer/batch_commit/lines.rs`.

use fsm_core::changes::{Note, NoteKind};
use fsm_core::decide::fire::rejected;
use fsm_core::decide::outbox::{backoff, deliver_line};
use fsm_core::decide::send::Send;
use fsm_core::ids::InstanceId;
use fsm_core::instance::Instance;
use fsm_core::outcome::Outgoing;
use fsm_core::time::Timestamp;

use super::Model;
use super::batch_commit::{ALL, CommitOutcome, delivery};
use super::promise::Broken;
use super::queue::{BatchCommit, Decided, KEYS, Reply};
use super::store::Store;
use super::variant::Variant;

/// A row of `fsm_outbox`.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub sender: InstanceId,
    pub outgoing: Outgoing,
    /// The time of the next delivery of the line. Only its first event has one.
    pub due_at: Option<Timestamp>,
    pub tries: u32,
}

impl Store {
    /// `outbox::line`.
    pub fn line<'s>(&'s self, key: &'s str) -> impl Iterator<Item = &'s Waiting> {
        self.outbox.iter().filter(move |waiting| waiting.outgoing.key == key)
    }

    /// `outbox::due`: the receivers whose lines are due.
    pub fn due_lines(&self, now: Timestamp) -> Vec<usize> {
        let is_due = |key: &&str| self.line(key).next().is_some_and(|first| first.due_at.is_some_and(|due_at| due_at <= now));
        (0..KEYS.len()).filter(|key| is_due(&KEYS[*key])).collect()
    }

    /// True if nothing in the outbox can be delivered: the inboxes of all receivers are full.
    pub fn has_no_room(&self, key: &str, limit: u64) -> bool {
        self.instance(key).is_some_and(|instance| instance.inbox_len() >= limit)
    }

    fn note_sender(&mut self, sender: InstanceId, kind: NoteKind, waiting: &Outgoing, detail: String, now: Timestamp) -> bool {
        let exists = self.instances.contains_key(&sender);
        if exists {
            self.notes.push(Note { instance: sender, at: now, kind, call: Some(waiting.id), detail: Some(detail), actor: None });
        }
        exists
    }
}

impl Model {
    /// `outbox::put` for one event.
    pub fn put_in_outbox(&mut self, sender: InstanceId, outgoing: &Outgoing, now: Timestamp) {
        let is_first = self.store.line(&outgoing.key).next().is_none();
        let due_at = is_first.then(|| now + backoff(0));
        self.store.outbox.push(Waiting { sender, outgoing: outgoing.clone(), due_at, tries: 0 });
    }

    /// `BatchCommit::deliver_line`. Returns `None` if another process created the receiver in the meantime.
    pub fn deliver(
        &mut self,
        batch_commit: &mut BatchCommit,
        key: usize,
        read_before: &[Outgoing],
    ) -> Result<Option<CommitOutcome>, Broken> {
        let is_blind = self.variant == Variant::OutboxDeliversTwice;
        let line: Vec<Outgoing> =
            if is_blind { read_before.to_vec() } else { self.store.line(KEYS[key]).map(|one| one.outgoing.clone()).collect() };
        let tries = self.store.line(KEYS[key]).next().map_or(0, |first| first.tries);
        let mut commit_outcome = CommitOutcome::of(Reply::Done);
        let mut receiver = batch_commit.snapshot(key).clone();
        receiver.inbox.first = self.store.waiting(receiver.instance.id);
        let mut moments: Vec<_> = line.iter().map(|_| self.moment(batch_commit)).collect();
        moments.iter_mut().skip(1).for_each(|moment| moment.grant = None);
        let mut moments = moments.into_iter();
        let sends: Vec<Send> = line.iter().map(delivery).map(|send| Send { deliver_at: None, ..send }).collect();
        let delivered = deliver_line(&self.machine, &receiver, sends, || moments.next().expect("one for each")).expect(ALL);
        let is_all = delivered.len() == line.len();
        let how_many = delivered.len();
        for (one, outgoing) in delivered.into_iter().zip(&line) {
            let sender = self.store.outbox.iter().find(|waiting| waiting.outgoing.id == one.call).map(|waiting| waiting.sender);
            self.store.outbox.retain(|waiting| waiting.outgoing.id != one.call);
            let changes = match one.outcome {
                Ok(changes) => changes,
                Err(refusal) => {
                    let exists = !batch_commit.snapshot(key).is_new;
                    let kind = if exists { NoteKind::Refused } else { NoteKind::Rejected };
                    let is_noted =
                        sender.is_some_and(|sender| self.store.note_sender(sender, kind, outgoing, refusal.to_string(), batch_commit.now));
                    if !exists {
                        if !is_noted {
                            self.ledger.pruned.insert(one.call);
                        }
                        continue;
                    }
                    rejected(Instance::clone(&batch_commit.snapshot(key).instance), one.call, &refusal, batch_commit.now)
                }
            };
            let one = self.write_one(batch_commit, key, None, Decided::of(Reply::Done, Some(changes)))?;
            if one.reply.is_none() {
                return Ok(None);
            }
            commit_outcome.runs.extend(one.runs);
        }
        if let Some(first) = self.store.outbox.iter_mut().find(|waiting| waiting.outgoing.key == KEYS[key]) {
            first.tries = if how_many == 0 { tries.saturating_add(1) } else { 0 };
            let wait = if is_all || self.variant == Variant::OutboxRetriesForEver { Default::default() } else { backoff(first.tries) };
            first.due_at = Some(batch_commit.now + wait);
        }
        Ok(Some(commit_outcome))
    }
}

//! The outbox as values, mirroring `fsm-store/src/outbox.rs`.

use fsm_core::changes::{Note, NoteKind};
use fsm_core::commit::rows::{InLine, SenderNote};
use fsm_core::ids::InstanceId;
use fsm_core::outcome::Outgoing;
use fsm_core::time::Timestamp;

use super::Model;
use super::queue::KEYS;
use super::store::Store;

/// A row of `fsm_outbox`.
#[derive(Debug, Clone)]
pub struct Delayed {
    pub sender: InstanceId,
    pub outgoing: Outgoing,
    /// The time of the next delivery of the line. Only its first event has one.
    pub due_at: Option<Timestamp>,
    pub tries: u32,
}

impl Store {
    /// `outbox::line`.
    pub fn line<'s>(&'s self, key: &'s str) -> impl Iterator<Item = &'s Delayed> {
        self.outbox.iter().filter(move |delayed| delayed.outgoing.key == key)
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

    /// `outbox::line`, or these events as they were read before.
    pub fn in_line(&self, key: &str, read_before: Option<Vec<Outgoing>>, limit: u32) -> Vec<InLine> {
        let tries = self.line(key).next().map_or(0, |first| first.tries);
        let all = read_before.unwrap_or_else(|| self.line(key).map(|delayed| delayed.outgoing.clone()).collect());
        let sender = |one: &Outgoing| self.outbox.iter().find(|delayed| delayed.outgoing.id == one.id).map(|delayed| delayed.sender);
        let in_line = |one: Outgoing| InLine {
            call: one.id,
            sender: sender(&one).unwrap_or(InstanceId(uuid::Uuid::nil())),
            event: one.event,
            tries,
            priority: one.priority,
        };
        all.into_iter().take(limit as usize).map(in_line).collect()
    }
}

impl Model {
    /// `outbox::note` for one sender. An event for nobody, from a sender that was deleted, is noted nowhere.
    pub fn note_sender(&mut self, note: &SenderNote, now: Timestamp) {
        let SenderNote { sender, kind, call, detail } = note;
        if self.store.instances.contains_key(sender) {
            let (call, detail) = (Some(*call), Some(detail.clone()));
            self.store.notes.push(Note { instance: *sender, at: now, kind: *kind, call, detail, actor: None });
        } else if *kind == NoteKind::Rejected {
            self.ledger.pruned.insert(*call);
        }
    }
}

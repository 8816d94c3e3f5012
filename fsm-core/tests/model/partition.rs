//! The outbox of a partition as values, mirroring `fsm-store/src/partition_outbox.rs`. A broken engine makes its mistakes with claims here.

use std::collections::HashMap;

use fsm_core::commit::partition_delivery::{Again, ClaimedLine, Finish, WaitingEvent};
use fsm_core::commit::rows::Unsent;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::Outgoing;
use fsm_core::time::Timestamp;

use super::Model;
use super::ledger::Elsewhere;
use super::queue::{KEYS, key_index};
use super::store::Store;
use super::variant::Variant;

/// The number of partitions. The first key is in the first one, the second key in the second one, and so on.
pub const PARTITIONS: usize = 2;
/// The maximum number of events of a claim. It is small, so that events stay behind.
const OF_ONE_LINE: usize = 3;

/// The partition of the instance with this key.
pub fn partition_of(key: &str) -> usize {
    key_index(key) % PARTITIONS
}

/// A row of `fsm_partition_outbox`.
#[derive(Debug, Clone)]
pub struct ForPartition {
    pub number: i64,
    pub sender: InstanceId,
    pub outgoing: Outgoing,
    pub due_at: Timestamp,
    pub tries: u32,
}

impl ForPartition {
    fn waiting(&self) -> WaitingEvent {
        let Outgoing { id, event, priority, .. } = &self.outgoing;
        let (sender, due_at, tries) = (self.sender, self.due_at, self.tries);
        WaitingEvent { number: self.number, call: *id, event: event.clone(), sender, due_at, tries, priority: *priority, notice: None }
    }

    /// True if the row is of the line of this receiver, and is not delayed beyond `now`.
    fn is_of(&self, key: &str, now: Timestamp) -> bool {
        self.outgoing.key == key && self.outgoing.deliver_at.is_none_or(|at| at <= now)
    }
}

impl Store {
    /// `partition_outbox::due`: the receivers for which events are due.
    pub fn due_elsewhere(&self, now: Timestamp) -> Vec<usize> {
        let is_due = |key: &&str| self.partition_outbox.iter().any(|row| row.outgoing.key == **key && row.due_at <= now);
        (0..KEYS.len()).filter(|key| is_due(&KEYS[*key])).collect()
    }

    /// `partition_outbox::claim`.
    pub fn claim_line(&mut self, machine: &str, key: &str, now: Timestamp, until: Timestamp, variant: Variant) -> Option<ClaimedLine> {
        let is_claimed = |row: &&ForPartition| variant != Variant::PartitionEventsOutOfOrder || row.due_at <= now;
        let line = self.partition_outbox.iter().filter(|row| row.is_of(key, now)).filter(is_claimed);
        let events: Vec<_> = line.take(OF_ONE_LINE).map(ForPartition::waiting).collect();
        if let Some(held) = events.iter().find(|event| event.due_at > now) {
            self.postpone(key, now, Again { due_at: held.due_at, tries: held.tries });
            return None;
        }
        let marked = if variant == Variant::PartitionClaimOfTheFirstOnly { 1 } else { events.len() };
        let numbers: Vec<_> = events.iter().take(marked).map(|event| event.number).collect();
        self.partition_outbox.iter_mut().filter(|row| numbers.contains(&row.number)).for_each(|row| row.due_at = until);
        let (machine, key) = (machine.to_owned(), key.to_owned());
        (!events.is_empty()).then_some(ClaimedLine { machine, key, events, until })
    }

    fn postpone(&mut self, key: &str, now: Timestamp, again: Again) {
        for row in self.partition_outbox.iter_mut().filter(|row| row.is_of(key, now)) {
            (row.due_at, row.tries) = (again.due_at, again.tries);
        }
    }

    /// True if the event waits for another partition.
    pub fn is_for_partition(&self, call: CallId) -> bool {
        self.partition_outbox.iter().any(|row| row.outgoing.id == call)
    }
}

impl Model {
    /// `Environment::partition_elsewhere`.
    pub fn partition_elsewhere(&self, key: &str) -> Option<u32> {
        let of = partition_of(key) as u32;
        self.partition.filter(|here| *here != of).map(|_| of)
    }

    /// `partition_outbox::put` for one event.
    pub fn put_for_partition(&mut self, sender: InstanceId, outgoing: &Outgoing, now: Timestamp) {
        self.store.numbers += 1;
        let due_at = outgoing.deliver_at.unwrap_or(now);
        let row = ForPartition { number: self.store.numbers, sender, outgoing: outgoing.clone(), due_at, tries: 0 };
        self.store.partition_outbox.push(row);
        let is_delayed = outgoing.deliver_at.is_some();
        self.ledger.elsewhere.push(Elsewhere { call: outgoing.id, sender, key: outgoing.key.clone(), is_delayed });
    }

    /// `partition_outbox::finish`.
    pub fn finish_line(&mut self, line: &ClaimedLine, finish: &Finish, now: Timestamp) {
        let first = line.events.first().map(|first| first.number);
        let has = self.store.partition_outbox.iter().any(|row| Some(row.number) == first && row.due_at == line.until);
        if !has && self.variant != Variant::PartitionFinishWithoutClaim {
            return;
        }
        self.store.partition_outbox.retain(|row| !finish.delivered.contains(&row.outgoing.id));
        finish.notes.iter().for_each(|note| self.note_sender(note, now));
        self.store.postpone(&line.key, now, finish.again);
        self.is_dirty = true;
    }

    /// `partition_outbox::unsend`.
    pub fn unsend_to_partition(&mut self, sends: &[CallId]) -> HashMap<CallId, Unsent> {
        let is_cancelled = |row: &ForPartition| sends.contains(&row.outgoing.id) && row.outgoing.deliver_at == Some(row.due_at);
        let (cancelled, kept) = std::mem::take(&mut self.store.partition_outbox).into_iter().partition(is_cancelled);
        let cancelled: Vec<ForPartition> = cancelled;
        self.store.partition_outbox = kept;
        self.ledger.cancelled.extend(cancelled.iter().map(|row| row.outgoing.id));
        let unsent =
            |Outgoing { id, machine, key, event, .. }: Outgoing| (id, Unsent { receiver: Some((machine, key)), event: event.name });
        cancelled.into_iter().map(|row| unsent(row.outgoing)).collect()
    }
}

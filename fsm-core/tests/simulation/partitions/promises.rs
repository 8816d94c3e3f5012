//! The promises about events between partitions, which no partition can check alone.

use super::pair::Pair;
use crate::model::commit::INBOX;
use crate::model::ledger::Elsewhere;
use crate::model::partition::partition_of;
use crate::model::promise::{Broken, Promise};

impl Pair {
    /// Checks the promises that hold after every step.
    pub fn check(&mut self) -> Result<(), Broken> {
        let mut arrived = Vec::new();
        for here in &self.worlds {
            let (store, ledger) = (&here.model.store, &here.model.ledger);
            for (place, event) in ledger.elsewhere.iter().enumerate() {
                let (call, key) = (event.call, &event.key);
                let is_taken = self.is_taken(event);
                let is_cancelled = ledger.cancelled.contains(&call);
                let is_refused = store.is_rejected(call);
                // The history of a sender is deleted with it.
                let has_left = is_taken || is_cancelled || is_refused || ledger.pruned.contains(&call);
                if !has_left && !store.is_for_partition(call) {
                    return Promise::KeptBetweenPartitions.broken(format!("{call} to `{key}` is lost"));
                }
                if is_refused && is_taken {
                    return Promise::RejectedNeverBegins.broken(format!("{call} to `{key}` was refused, and is taken"));
                }
                if is_cancelled && is_taken {
                    return Promise::CancelledIsNotDelivered.broken(format!("{call} to `{key}` was cancelled, and is taken"));
                }
                if !is_taken || self.taken.contains(&call) {
                    continue;
                }
                arrived.push(call);
                let is_before = |other: &&Elsewhere| (other.sender, &other.key) == (event.sender, key) && !other.is_delayed;
                let mut before = ledger.elsewhere[..place].iter().filter(is_before).filter(|_| !event.is_delayed);
                let waits = |other: &&Elsewhere| store.is_for_partition(other.call) && !self.is_taken(other);
                if let Some(overtaken) = before.find(waits) {
                    return Promise::SentInOrder.broken(format!("{call} to `{key}` overtakes {}", overtaken.call));
                }
            }
        }
        self.taken.extend(arrived);
        Ok(())
    }

    /// Checks the promises that hold once nothing is left to do.
    pub fn check_at_rest(&self) -> Result<(), Broken> {
        for world in &self.worlds {
            let store = &world.model.store;
            if let Some(waiting) = store.partition_outbox.iter().find(|row| !self.has_no_room(&row.outgoing.key)) {
                let (event, key) = (&waiting.outgoing.event.name, &waiting.outgoing.key);
                return Promise::EverythingComesToRest.broken(format!("`{event}` waits for another partition, and `{key}` has room"));
            }
            world.model.ledger.check_at_rest(store)?;
        }
        Ok(())
    }

    /// True if the inbox of the receiver is full.
    pub fn has_no_room(&self, key: &str) -> bool {
        self.worlds[partition_of(key)].model.store.has_no_room(key, INBOX)
    }

    /// True if the receiver has, or had, the event.
    fn is_taken(&self, event: &Elsewhere) -> bool {
        let there = &self.worlds[partition_of(&event.key)].model;
        there.store.known(event.call).is_some() || there.ledger.pruned.contains(&event.call)
    }
}

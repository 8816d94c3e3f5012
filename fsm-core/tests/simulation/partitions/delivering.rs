//! The deliveries between partitions, mirroring `fsm-runtime/src/partition_outbox.rs`. Both drive `fsm_core::commit::partition_delivery`.

use std::time::Duration;

use fsm_core::changes::NoteKind;
use fsm_core::commit::partition_delivery::{Delivery, SendAnswer, WaitingEvent, claim_until};
use fsm_core::commit::rows::SenderNote;

use super::pair::{DeliveryInProgress, Pair};
use crate::machine::NAME;
use crate::model::commit::INBOX;
use crate::model::partition::partition_of;
use crate::model::queue::{KEYS, Request, Sending, key_index};
use crate::model::variant::Variant;
use crate::step::End;

/// The longest wait for the answer to one send.
const PATIENCE: Duration = Duration::from_secs(3);

impl Pair {
    /// A process claims the line for a receiver, if it reaches the outbox.
    pub fn claim_line(&mut self, from: usize, p: usize, key: usize, end: End) {
        let is_another = |other: &DeliveryInProgress| other.process != p || other.delivery.line().key != KEYS[key];
        let world = &mut self.worlds[from];
        // One task of a process serves a partition.
        if !world.is_working(p) || world.processes[p].is_shutting_down || end == End::Fails || !self.deliveries.iter().all(is_another) {
            return;
        }
        let now = world.clock(p);
        let Some(line) = world.model.store.claim_line(NAME, KEYS[key], now, claim_until(now, PATIENCE), self.variant) else { return };
        world.model.is_dirty = true;
        // Without the answer, the process does not know that it has the line.
        if end == End::Commits {
            let (delivery, late_notes) = (Delivery::new(line), Vec::new());
            self.deliveries.push(DeliveryInProgress { process: p, from, delivery, begun: now, sending: None, tries: 0, late_notes });
        }
    }

    /// A delivery goes on by one step.
    pub fn deliver_next(&mut self, n: usize, end: End) {
        let DeliveryInProgress { process: p, from, .. } = self.deliveries[n];
        let process = &self.worlds[from].processes[p];
        if !process.is_alive || process.is_stalled || !self.hears(n) {
            return;
        }
        let lasted = self.worlds[from].clock(p).since(self.deliveries[n].begun);
        match self.deliveries[n].delivery.next(lasted, |_| true).cloned() {
            Some(event) => self.send(n, &event),
            None => self.finish(n, end),
        }
    }

    /// The delivery waits no longer for the answer to its send.
    pub fn give_up(&mut self, p: usize, which: usize) {
        if let Some(n) = self.delivery_of(p, which)
            && self.deliveries[n].sending.is_some()
        {
            self.answered(n, SendAnswer::Failed);
        }
    }

    /// The place of a delivery of this process.
    pub fn delivery_of(&self, p: usize, which: usize) -> Option<usize> {
        let own: Vec<_> = (0..self.deliveries.len()).filter(|n| self.deliveries[*n].process == p).collect();
        own.get(which.checked_rem(own.len())?).copied()
    }

    /// Takes the answer to the open send. Returns false if the delivery still waits for it.
    fn hears(&mut self, n: usize) -> bool {
        let DeliveryInProgress { process: p, from, sending, ref delivery, .. } = self.deliveries[n];
        let Some(number) = sending else { return true };
        let to = partition_of(&delivery.line().key);
        let is_over = self.worlds[from].clock(p) >= delivery.line().until;
        let process = &mut self.worlds[to].processes[p];
        let answer = match process.answers.remove(&number) {
            None if process.is_shutting_down => Some(SendAnswer::Stopping),
            None if is_over => Some(SendAnswer::Failed),
            answer => answer,
        };
        let has_answer = answer.is_some();
        answer.into_iter().for_each(|answer| self.answered(n, answer));
        has_answer
    }

    fn answered(&mut self, n: usize, answer: SendAnswer) {
        let one = &mut self.deliveries[n];
        let to = partition_of(&one.delivery.line().key);
        if let Some(number) = one.sending.take() {
            // No commit of it begins from now on.
            self.worlds[to].processes[one.process].awaited.remove(&number);
        }
        match (self.variant, answer) {
            (Variant::PartitionRefusalNotedLater, SendAnswer::Refused(detail)) => {
                let event = one.delivery.next(Duration::ZERO, |_| true).expect("it was sent just now");
                one.late_notes.push(SenderNote { sender: event.sender, kind: NoteKind::Rejected, call: event.call, detail });
                one.delivery.answered(SendAnswer::Taken);
            }
            (_, answer) => one.delivery.answered(answer),
        }
    }

    /// The process asks its engine of the other partition to take an event.
    fn send(&mut self, n: usize, event: &WaitingEvent) {
        let DeliveryInProgress { process: p, from, ref mut sending, ref delivery, .. } = self.deliveries[n];
        let line = delivery.line();
        let left = line.until.since(self.worlds[from].clock(p));
        let world = &mut self.worlds[partition_of(&line.key)];
        let mut send = event.send(INBOX);
        if self.variant == Variant::PartitionEventDeliveredTwice {
            send.dedup = None;
        }
        world.model.ledger.clients.insert(event.call);
        let number = world.model.fresh();
        *sending = Some(number);
        let delivery = Some(Sending { number, until: world.now + left });
        let process = &mut world.processes[p];
        process.awaited.insert(number);
        process.queue.push(Request { delivery, ..Request::send(&world.model.machine, key_index(&line.key), send) });
    }

    /// Writes the end of the claim.
    fn finish(&mut self, n: usize, end: End) {
        let one = &mut self.deliveries[n];
        let world = &mut self.worlds[one.from];
        let now = world.clock(one.process);
        if world.is_working(one.process) && end != End::Fails {
            let mut finish = one.delivery.finish(now);
            finish.notes.append(&mut one.late_notes.clone());
            world.model.finish_line(one.delivery.line(), &finish, now);
        }
        let is_known = world.is_working(one.process) && end == End::Commits;
        if is_known || one.delivery.finish_again(one.tries, now).is_none() || world.processes[one.process].is_shutting_down {
            self.deliveries.remove(n);
        } else {
            one.tries += 1;
        }
    }
}

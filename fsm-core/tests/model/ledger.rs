//! The ledger: the answers that callers received and the verbs that ran, recorded outside the database, and the checks of the promises
//! against it.

use std::collections::{BTreeMap, BTreeSet};

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, Note, NoteKind, Open, TimerChange};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Status;

use super::commit::INBOX;
use super::promise::{Broken, Promise};
use super::queue::{Origin, Request};
use super::store::{Row, Store};

/// An event that a verb sent to an instance of another partition.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    pub call: CallId,
    pub sender: InstanceId,
    pub key: String,
    pub is_delayed: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The calls of events from outside: not those of `next`, timers and catch verbs.
    pub clients: BTreeSet<CallId>,
    /// The calls that were acknowledged to a caller.
    pub told: Vec<CallId>,
    /// The events that verbs sent, each with the attempt that sent it.
    pub sent_by: Vec<(CallId, (CallId, u32))>,
    /// The events that verbs sent for immediate delivery, in the order of their commits, with the sender and the receiver's key.
    pub sent: Vec<(CallId, InstanceId, String)>,
    /// The events that verbs sent to instances of other partitions, in the order of their commits.
    pub elsewhere: Vec<Elsewhere>,
    /// The events to other partitions that verbs have cancelled.
    pub cancelled: BTreeSet<CallId>,
    /// True if the clocks differ, so that a lease may expire early or late for another process.
    pub is_skewed: bool,
    /// The calls that were deleted with their instances.
    pub pruned: BTreeSet<CallId>,
    /// The order in which events arrived at their instances.
    order: BTreeMap<CallId, usize>,
    turns: usize,
    begun: BTreeSet<u64>,
    executed: BTreeMap<CallId, Vec<u32>>,
}

impl Ledger {
    /// A verb begins under a grant.
    pub fn begins(&mut self, store: &Store, attempt: &Attempt, grant: u64) -> Result<(), Broken> {
        self.begun.insert(grant);
        if !store.instances.contains_key(&attempt.instance) {
            return Promise::NoRunWithoutAnInstance
                .broken(format!("attempt {} of `{}` begins, and is of no instance", attempt.number, attempt.verb));
        }
        let executed = self.executed.entry(attempt.call).or_default();
        if executed.contains(&attempt.number) {
            return Promise::AttemptRunsOnce.broken(format!("attempt {} of `{}` is executed twice", attempt.number, attempt.verb));
        }
        executed.push(attempt.number);
        let by_hand = store.notes.iter().filter(|note| note.kind == NoteKind::Retried && note.call == Some(attempt.call)).count();
        let may_run = 1 + by_hand + attempt.retry_state.snoozes as usize;
        if attempt.retry_state.policy.is_none() && executed.len() > may_run {
            return Promise::NoPolicyNoSecondRun
                .broken(format!("`{}` has no policy and is executed again, in attempt {}", attempt.verb, attempt.number));
        }
        Ok(())
    }

    /// Records written changes: who reported, and whether the event came first in the inbox. `held` is the closed attempt as it was before.
    pub fn account(&mut self, store: &Store, changes: &Changes, held: Option<&Row>, request: Option<&Request>) -> Result<(), Broken> {
        let report = request.filter(|request| request.report().is_some());
        if let (Some(close), Some(held), Some(report)) = (&changes.close, held, report) {
            match report.origin {
                Origin::Verb(grant) if grant != held.grant || !held.attempt.state.is_live() => {
                    return Promise::OnlyTheHolderReports.broken(format!(
                        "attempt {} of `{}` was {} under grant {}, and the report of grant {grant} closed it",
                        close.number, held.attempt.verb, held.attempt.state, held.grant
                    ));
                }
                Origin::HeldButNotRunning if self.begun.contains(&held.grant) => {
                    return Promise::NotReturnedOnceBegun
                        .broken(format!("attempt {} of `{}` was given back as if it had not begun", close.number, held.attempt.verb));
                }
                _ if !held.attempt.state.is_live() => {
                    return Promise::AttemptEndsOnce.broken(format!(
                        "attempt {} of `{}` was {} and was closed again",
                        close.number, held.attempt.verb, held.attempt.state
                    ));
                }
                _ => {}
            }
        }
        if let (Some(close), Some(held), false) = (&changes.close, held, report.is_some())
            && held.attempt.state == AttemptState::Executing
            && close.expected == AttemptState::Scheduled
        {
            return Promise::NotEndedWhileItExecutes
                .broken(format!("attempt {} of `{}` executes and was ended as if it had not begun", close.number, held.attempt.verb));
        }
        if let (Some(close), Some(held)) = (&changes.close, held)
            && close.becomes == AttemptState::Success
            && held.attempt.is_stay()
            && changes.timers.iter().any(|change| matches!(change, TimerChange::Clear | TimerChange::Set(_)))
        {
            return Promise::StayKeepsTheTimer.broken(format!("`{}` stays in its state, and changes its timer", held.attempt.verb));
        }
        if let Some(waits) = &changes.waits {
            let is_in_front = waits.position + 1 < changes.instance.inbox_tail;
            if is_in_front {
                self.order.insert(waits.call, 0);
            } else {
                self.keeps_its_order(store, waits.call)?;
            }
            self.comes(waits.call);
        }
        let interrupts = changes.notes.iter().any(|note| note.kind == NoteKind::Interrupted);
        let is_a_clients = |open: &&Open| open.attempt.number == 1 && self.clients.contains(&open.attempt.call);
        if let Some(open) = changes.open.as_ref().filter(is_a_clients).filter(|_| !interrupts) {
            self.keeps_its_order(store, open.attempt.call)?;
            let turn = self.comes(open.attempt.call);
            let waiting = store.waiting(changes.instance.id);
            if let Some(first) = waiting.iter().find(|waiting| self.order.get(&waiting.call).is_some_and(|other| *other < turn)) {
                return Promise::FirstComeFirstServed
                    .broken(format!("`{}` came before `{}`, and is taken after it", first.event, open.attempt.event));
            }
        }
        Ok(())
    }

    /// Checks an arriving event: no earlier event from the same sender to the same receiver waits in the outbox.
    fn keeps_its_order(&self, store: &Store, call: CallId) -> Result<(), Broken> {
        let Some(place) = self.sent.iter().position(|(sent, ..)| *sent == call) else { return Ok(()) };
        let (_, sender, receiver) = &self.sent[place];
        let mut earlier = self.sent[..place].iter().filter(|(_, by, to)| (by, to) == (sender, receiver));
        match earlier.find(|(sent, ..)| store.is_in_outbox(*sent)) {
            Some((overtaken, ..)) => Promise::SentInOrder.broken(format!("{call} to `{receiver}` overtakes {overtaken}")),
            None => Ok(()),
        }
    }

    fn comes(&mut self, call: CallId) -> usize {
        self.turns += 1;
        *self.order.entry(call).or_insert(self.turns)
    }

    /// Checks the promises that hold after every step.
    pub fn check(&self, store: &Store) -> Result<(), Broken> {
        for call in &self.told {
            if store.known(*call).is_none() && !self.pruned.contains(call) {
                return Promise::AcknowledgedIsKept.broken(format!("{call} was acknowledged and is lost"));
            }
        }
        for (sent, sender) in &self.sent_by {
            if store.known(*sent).is_some()
                && !self.pruned.contains(&sender.0)
                && store.attempt(*sender).is_none_or(|sender| sender.state != AttemptState::Success)
            {
                return Promise::OnlySuccessSends.broken(format!("{sent} was sent by an attempt that did not succeed"));
            }
        }
        // A full inbox is an error for an outside sender. A verb gets no such error, because its transition is committed.
        let is_dropped =
            |note: &&Note| note.kind == NoteKind::Rejected && note.detail.as_ref().is_some_and(|why| why.contains("inbox is full"));
        if let Some(dropped) = store.notes.iter().find(is_dropped) {
            return Promise::NoneDroppedForLackOfRoom.broken(dropped.detail.clone().unwrap_or_default());
        }
        let mut actors = BTreeSet::new();
        if let Some(twice) = store.notes.iter().find(|note| note.actor.as_ref().is_some_and(|actor| !actors.insert(actor))) {
            return Promise::OperatedOnce.broken(format!("an operator's one act is carried out twice: {}", twice.kind));
        }
        self.each_event_is_taken_once(store)
    }

    /// The payload identifies the sender's intention, so that the same intention under two ids is detected.
    fn each_event_is_taken_once(&self, store: &Store) -> Result<(), Broken> {
        let mut wishes = BTreeSet::new();
        let begun = store.calls.values().filter(|row| !row.attempt.is_catch()).filter_map(|row| row.payload.as_deref());
        let waiting = store.inbox.values().map(|waits| waits.event.payload.as_slice());
        let delayed = store.timers.values().map(|(timer, _)| timer.event.payload.as_slice());
        let in_outbox = store.outbox.iter().map(|waiting| waiting.outgoing.event.payload.as_slice());
        for wish in begun.chain(waiting).chain(delayed).chain(in_outbox).filter(|wish| !wish.starts_with(b"{")) {
            if !wishes.insert(wish) {
                return Promise::TakenOnce.broken(format!("event {} is taken twice", String::from_utf8_lossy(wish)));
            }
        }
        if let Some((call, _)) = store.calls.keys().find(|(call, _)| store.is_rejected(*call)) {
            return Promise::RejectedNeverBegins.broken(format!("{call} was rejected, and began all the same"));
        }
        Ok(())
    }

    /// Checks the promises that hold once everything has come to rest with all processes alive.
    pub fn check_at_rest(&self, store: &Store) -> Result<(), Broken> {
        if let Some(live) = store.live().next() {
            return Promise::EverythingComesToRest.broken(format!("attempt {} of `{}` stays {}", live.number, live.verb, live.state));
        }
        if let Some((timer, _)) = store.timers.values().find(|(timer, _)| timer.state.is_none()) {
            return Promise::EverythingComesToRest.broken(format!("the delayed `{}` is never delivered", timer.event.name));
        }
        if let Some(waiting) = store.outbox.iter().find(|waiting| !store.has_no_room(&waiting.outgoing.key, INBOX)) {
            let (event, key) = (&waiting.outgoing.event.name, &waiting.outgoing.key);
            return Promise::EverythingComesToRest.broken(format!("`{event}` waits in the outbox, and `{key}` has room"));
        }
        let is_free = |id| store.instances.get(id).is_some_and(|instance| instance.status == Status::Running && !instance.is_open);
        if let Some((timer, _)) = store.timers.values().find(|(timer, held)| *held && is_free(&timer.instance)) {
            return Promise::EverythingComesToRest.broken(format!("the timer of {:?} stays held", timer.state));
        }
        if let Some(empty) = store.instances.values().find(|instance| instance.has_not_begun()) {
            return Promise::EverythingComesToRest.broken(format!("`{}` has not begun, and nothing is to come", empty.key));
        }
        for call in self.told.iter().filter(|call| !self.pruned.contains(call)) {
            let successes = store.attempts_of(*call).filter(|row| row.attempt.state == AttemptState::Success).count();
            let given_up = |kind| matches!(kind, NoteKind::Rejected | NoteKind::Skipped | NoteKind::Cancelled | NoteKind::Interrupted);
            let is_noted = store.notes.iter().any(|note| note.call == Some(*call) && given_up(note.kind));
            if successes != 1 && !is_noted && !store.is_in_outbox(*call) && !self.is_in_error(store, *call) {
                return Promise::AcknowledgedIsAnswered.broken(format!(
                    "{call} was acknowledged, and at rest it has neither succeeded nor been rejected, exhausted or cancelled"
                ));
            }
        }
        Ok(())
    }

    /// True if the call, or the call that it waits behind, is exhausted, or if it was caught and the catch verb gave the instance its next
    /// event.
    fn is_in_error(&self, store: &Store, call: CallId) -> bool {
        let waits_for = store.inbox.iter().find(|(_, waits)| waits.call == call).map(|((instance, _), _)| *instance);
        let whose = waits_for.or(store.last_attempt(call).map(|last| last.instance));
        let is_caught = store.calls.values().any(|row| row.attempt.is_catch() && row.attempt.previous == Some(call));
        is_caught || whose.and_then(|id| store.instances.get(&id)).is_some_and(|instance| instance.status == Status::Error)
    }
}

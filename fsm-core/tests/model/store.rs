//! The store as values: the tables of `migrations/`, and the statements of `store/{lock,claim,sessions,timers}.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Note, NoteKind, Request, Timer, Waiting, Waits};
use fsm_core::decide::inbox::Inbox;
use fsm_core::decide::send::SendOutcome;
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;

use super::queue::Seen;

/// A row of `fsm_async_calls`.
#[derive(Debug, Clone)]
pub struct Row {
    pub attempt: Attempt,
    pub payload: Option<Vec<u8>>,
    /// The number of the grant: it identifies one execution of the attempt by a session. It is not in the database; the ledger uses it for
    /// its checks.
    pub grant: u64,
}

/// The tables.
#[derive(Debug, Clone, Default)]
pub struct Store {
    pub instances: BTreeMap<InstanceId, Instance>,
    /// The number of the commit that last wrote each instance.
    pub stamps: BTreeMap<InstanceId, u64>,
    /// The number of commits.
    pub commits: u64,
    pub calls: BTreeMap<(CallId, u32), Row>,
    pub inbox: BTreeMap<(InstanceId, i64), Waits>,
    /// Each timer, and whether it is held.
    pub timers: BTreeMap<TimerId, (Timer, bool)>,
    pub requests: BTreeMap<(InstanceId, String), Request>,
    pub notes: Vec<Note>,
    /// The events that wait for room, in the order of their numbers.
    pub outbox: Vec<super::outbox::Waiting>,
    /// The end of the lease of each session.
    pub sessions: BTreeMap<SessionId, Timestamp>,
    /// The process of each session.
    pub homes: BTreeMap<SessionId, ProcessIdentity>,
    pub grants: u64,
}

impl Store {
    /// `lock::instances` for one instance.
    pub fn instance(&self, key: &str) -> Option<&Instance> {
        self.instances.values().find(|instance| instance.key == key)
    }

    /// `lock::see` for one instance.
    pub fn see(&self, key: &str) -> Option<Seen> {
        let instance = Arc::new(self.instance(key)?.clone());
        let has_timer = self.timers.values().any(|(timer, _)| timer.instance == instance.id && timer.state.is_some());
        let stamp = *self.stamps.get(&instance.id)?;
        Some(Seen { instance, has_timer, stamp, epoch: None })
    }

    /// `lock::attempts` for one attempt.
    pub fn attempt(&self, id: (CallId, u32)) -> Option<&Attempt> {
        self.calls.get(&id).map(|row| &row.attempt)
    }

    /// `lock::last_attempts` for one call.
    pub fn last_attempt(&self, call: CallId) -> Option<&Attempt> {
        self.attempts_of(call).last().map(|row| &row.attempt)
    }

    pub fn attempts_of(&self, call: CallId) -> impl Iterator<Item = &Row> {
        self.calls.range((call, 0)..=(call, u32::MAX)).map(|(_, row)| row)
    }

    /// `lock::inbox_ends` for one instance, with at most `most` events from its head.
    pub fn inbox(&self, instance: &Instance, most: i64) -> Inbox {
        let (id, head, tail) = (instance.id, instance.inbox_head, instance.inbox_tail);
        let mut inbox = Inbox::default();
        for waits in self.inbox.range((id, head)..(id, tail)).map(|(_, waits)| waits) {
            if waits.position < head + most || waits.position == tail - 1 {
                inbox.forecast.clone_from(&waits.forecast);
                if inbox.first.last().is_none_or(|before| before.position + 1 == waits.position) {
                    inbox.first.push(Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() });
                }
            }
        }
        inbox
    }

    /// `lock::inbox` for one instance.
    pub fn waiting(&self, instance: InstanceId) -> Vec<Waiting> {
        let all = self.inbox.range((instance, i64::MIN)..=(instance, i64::MAX));
        all.map(|(_, waits)| Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() }).collect()
    }

    /// `lock::known` for one call, with the outcome that `fate_of` of `committer/trip.rs` derives from it.
    pub fn known(&self, call: CallId) -> Option<SendOutcome> {
        if self.calls.contains_key(&(call, 1)) {
            Some(SendOutcome::Started)
        } else if self.inbox.values().any(|waits| waits.call == call) || self.is_in_outbox(call) || self.is_rejected(call) {
            Some(SendOutcome::Queued)
        } else {
            self.timers.get(&TimerId(call.0)).filter(|(timer, _)| timer.state.is_none()).map(|_| SendOutcome::Scheduled)
        }
    }

    /// True if the event waits for room.
    pub fn is_in_outbox(&self, call: CallId) -> bool {
        self.outbox.iter().any(|waiting| waiting.outgoing.id == call)
    }

    /// True if the event no longer fitted the state when it was taken from the inbox.
    pub fn is_rejected(&self, call: CallId) -> bool {
        self.notes.iter().any(|note| note.kind == NoteKind::Rejected && note.call == Some(call))
    }

    /// `prune::delete` for one instance. Returns the deleted calls.
    pub fn prune(&mut self, id: InstanceId) -> Vec<CallId> {
        let calls = self.calls.values().filter(|row| row.attempt.instance == id).map(|row| row.attempt.call);
        let noted = self.notes.iter().filter(|note| note.instance == id).filter_map(|note| note.call);
        let gone = calls.chain(noted).collect();
        self.calls.retain(|_, row| row.attempt.instance != id);
        self.notes.retain(|note| note.instance != id);
        self.requests.retain(|(instance, _), _| *instance != id);
        self.instances.remove(&id);
        self.stamps.remove(&id);
        self.commits += 1;
        gone
    }

    /// Returns the attempts that `CLAIM` finds, in the order of their due times.
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<(CallId, u32)> {
        let is_due = |attempt: &Attempt| attempt.state == AttemptState::Scheduled && !attempt.held && attempt.scheduled_at <= now;
        let mut due: Vec<_> = self.calls.values().map(|row| &row.attempt).filter(|attempt| is_due(attempt)).collect();
        due.sort_by_key(|attempt| attempt.scheduled_at);
        due.into_iter().take(limit).map(|attempt| (attempt.call, attempt.number)).collect()
    }

    /// Changes an attempt as `CLAIM` does.
    pub fn take(&mut self, id: (CallId, u32), me: SessionId, now: Timestamp) -> Row {
        self.grants += 1;
        let grant = self.grants;
        let row = self.calls.get_mut(&id).expect("attempts are never deleted");
        let attempt = Attempt { state: AttemptState::Executing, worker: Some(me), started_at: Some(now), ..row.attempt.clone() };
        *row = Row { attempt, grant, payload: row.payload.clone() };
        row.clone()
    }

    /// `timers::due`.
    pub fn due_timers(&self, now: Timestamp) -> Vec<Timer> {
        let mut due: Vec<_> =
            self.timers.values().filter(|(timer, held)| !held && timer.due_at <= now).map(|(timer, _)| timer.clone()).collect();
        due.sort_by_key(|timer| timer.due_at);
        due
    }

    /// `sessions::orphans`.
    pub fn orphans(&self, now: Timestamp) -> Vec<Attempt> {
        let is_dead = |attempt: &&Attempt| attempt.worker.and_then(|worker| self.sessions.get(&worker)).is_none_or(|until| *until <= now);
        self.executing().filter(is_dead).cloned().collect()
    }

    /// `sessions::held`.
    pub fn held(&self, session: SessionId) -> Vec<Attempt> {
        self.executing().filter(|attempt| attempt.worker == Some(session)).cloned().collect()
    }

    /// `sessions::bury`.
    pub fn bury(&mut self, now: Timestamp) {
        let working: Vec<_> = self.executing().filter_map(|attempt| attempt.worker).collect();
        self.sessions.retain(|session, until| *until > now || working.contains(session));
    }

    fn executing(&self) -> impl Iterator<Item = &Attempt> {
        self.calls.values().map(|row| &row.attempt).filter(|attempt| attempt.state == AttemptState::Executing)
    }

    pub fn live(&self) -> impl Iterator<Item = &Attempt> {
        self.calls.values().map(|row| &row.attempt).filter(|attempt| attempt.state.is_live())
    }

    pub fn key_of(&self, instance: InstanceId) -> &str {
        self.instances.get(&instance).map_or("?", |instance| &instance.key)
    }
}

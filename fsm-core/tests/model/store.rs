//! The store as values: the tables of `migrations/`, and what `store/{lock,claim,sessions,timers}.rs` read and take.

use std::collections::BTreeMap;
use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Note, NoteKind, Request, Timer, Waiting, Waits};
use fsm_core::decide::inbox::Inbox;
use fsm_core::decide::send::SendOutcome;
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;

use super::queue::Seen;

/// A row of `fsm_async_calls`.
#[derive(Debug, Clone)]
pub struct Row {
    pub attempt: Attempt,
    pub payload: Option<Vec<u8>>,
    /// Names the one time that a session was given this attempt. Not in the database: by it, promises are checked.
    pub grant: u64,
}

/// The tables.
#[derive(Debug, Clone, Default)]
pub struct Store {
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Which commit wrote each of them last.
    pub stamps: BTreeMap<InstanceId, u64>,
    /// How many there were.
    pub commits: u64,
    pub calls: BTreeMap<(CallId, u32), Row>,
    pub inbox: BTreeMap<(InstanceId, i64), Waits>,
    /// With whether each is held.
    pub timers: BTreeMap<TimerId, (Timer, bool)>,
    pub requests: BTreeMap<(InstanceId, String), Request>,
    pub notes: Vec<Note>,
    /// Until when each is believed.
    pub sessions: BTreeMap<SessionId, Timestamp>,
    pub grants: u64,
}

impl Store {
    /// `lock::instances`, of one.
    pub fn instance(&self, key: &str) -> Option<&Instance> {
        self.instances.values().find(|instance| instance.key == key)
    }

    /// `lock::see`, of one.
    pub fn see(&self, key: &str) -> Option<Seen> {
        let instance = Arc::new(self.instance(key)?.clone());
        let has_timer = self.timers.values().any(|(timer, _)| timer.instance == instance.id && timer.state.is_some());
        let stamp = *self.stamps.get(&instance.id)?;
        Some(Seen { instance, has_timer, stamp, epoch: None })
    }

    /// `lock::attempts`, of one.
    pub fn attempt(&self, id: (CallId, u32)) -> Option<&Attempt> {
        self.calls.get(&id).map(|row| &row.attempt)
    }

    /// `lock::last_attempts`, of one.
    pub fn last_attempt(&self, call: CallId) -> Option<&Attempt> {
        self.attempts_of(call).last().map(|row| &row.attempt)
    }

    pub fn attempts_of(&self, call: CallId) -> impl Iterator<Item = &Row> {
        self.calls.range((call, 0)..=(call, u32::MAX)).map(|(_, row)| row)
    }

    /// `lock::inbox_ends`, of one, and so much of its beginning.
    pub fn inbox(&self, instance: &Instance, most: i64) -> Inbox {
        let (id, head, tail) = (instance.id, instance.inbox_head, instance.inbox_tail);
        let mut inbox = Inbox::default();
        for waits in self.inbox.range((id, head)..(id, tail)).map(|(_, waits)| waits) {
            if waits.position < head + most || waits.position == tail - 1 {
                inbox.outlook.clone_from(&waits.outlook);
                if inbox.first.last().is_none_or(|before| before.position + 1 == waits.position) {
                    inbox.first.push(Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() });
                }
            }
        }
        inbox
    }

    /// `lock::inbox`, of one.
    pub fn waiting(&self, instance: InstanceId) -> Vec<Waiting> {
        let all = self.inbox.range((instance, i64::MIN)..=(instance, i64::MAX));
        all.map(|(_, waits)| Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() }).collect()
    }

    /// `lock::known`, of one: whose it is, and the outcome that `fate_of` of `committer/trip.rs` gives its place.
    pub fn known(&self, call: CallId) -> Option<SendOutcome> {
        if self.calls.contains_key(&(call, 1)) {
            Some(SendOutcome::Started)
        } else if self.inbox.values().any(|waits| waits.call == call) || self.is_rejected(call) {
            Some(SendOutcome::Queued)
        } else {
            self.timers.get(&TimerId(call.0)).filter(|(timer, _)| timer.state.is_none()).map(|_| SendOutcome::Scheduled)
        }
    }

    /// Whether its turn came when it no longer fitted.
    pub fn is_rejected(&self, call: CallId) -> bool {
        self.notes.iter().any(|note| note.kind == NoteKind::Rejected && note.call == Some(call))
    }

    /// `prune::delete`, of one. Gives the calls that are gone.
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

    /// What `CLAIM` finds, those due first first.
    pub fn due(&self, now: Timestamp, limit: usize) -> Vec<(CallId, u32)> {
        let is_due = |attempt: &Attempt| attempt.state == AttemptState::Scheduled && !attempt.held && attempt.scheduled_at <= now;
        let mut due: Vec<_> = self.calls.values().map(|row| &row.attempt).filter(|attempt| is_due(attempt)).collect();
        due.sort_by_key(|attempt| attempt.scheduled_at);
        due.into_iter().take(limit).map(|attempt| (attempt.call, attempt.number)).collect()
    }

    /// What `CLAIM` does to what it found.
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

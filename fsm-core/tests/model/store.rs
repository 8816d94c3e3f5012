//! The store as values: the tables of `migrations/`, and the statements of `fsm-store/src/{lock,claim,sessions,timers}.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Note, NoteKind, Request, Timer, Waiting, Waits};
use fsm_core::commit::rows::{KnownCall, Place, RowSnapshot, RowVersion};
use fsm_core::decide::inbox::Inbox;
use fsm_core::decide::send::SendOutcome;
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;

use super::database::is_open_or_exhausted;
use super::variant::Variant;

/// An attempt with its payload: the open one of an instance, which its row holds, or a row of `fsm_async_calls`.
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
    /// The number of commits.
    pub commits: u64,
    pub calls: BTreeMap<(CallId, u32), Row>,
    pub inbox: BTreeMap<(InstanceId, i64), Waits>,
    /// Each timer, and whether it is held.
    pub timers: BTreeMap<TimerId, (Timer, bool)>,
    pub requests: BTreeMap<(InstanceId, String), Request>,
    pub notes: Vec<Note>,
    /// The events that wait for room, in the order of their numbers.
    pub outbox: Vec<super::outbox::Delayed>,
    /// The events for instances of other partitions, in the order of their numbers.
    pub partition_outbox: Vec<super::partition::ForPartition>,
    /// The number of rows that were ever written to `partition_outbox`.
    pub numbers: i64,
    /// The end of the lease of each session.
    pub sessions: BTreeMap<SessionId, Timestamp>,
    /// The process of each session.
    pub homes: BTreeMap<SessionId, ProcessIdentity>,
    /// `fsm_session_log`: the instances in which a session began attempts.
    pub log: BTreeMap<(SessionId, u64), BTreeSet<InstanceId>>,
    /// The number of rows that were ever written to a log.
    pub logged: u64,
    pub grants: u64,
}

impl Store {
    /// `lock::instances` for one instance.
    pub fn instance(&self, key: &str) -> Option<&Instance> {
        self.instances.values().find(|instance| instance.key == key)
    }

    /// `lock::see` for one instance.
    pub fn see(&self, key: &str, row_version: RowVersion) -> Option<RowSnapshot> {
        let instance = Arc::new(self.instance(key)?.clone());
        let newest = instance.newest.filter(|_| is_open_or_exhausted(&instance)).and_then(|newest| self.attempt(newest));
        Some(RowSnapshot { newest: newest.cloned().map(Arc::new), has_timer: self.has_timer(instance.id), instance, row_version })
    }

    /// True if the instance has a timer of its state or a wake-up.
    pub fn has_timer(&self, instance: InstanceId) -> bool {
        self.timers.values().any(|(timer, _)| timer.instance == instance && (timer.state.is_some() || timer.is_wake()))
    }

    /// `lock::known` for one call.
    pub fn known_call(&self, call: CallId) -> Option<KnownCall> {
        let place = match self.known(call)? {
            SendOutcome::Started => Place::Call,
            SendOutcome::Scheduled => Place::Timer,
            _ => Place::Inbox,
        };
        Some(KnownCall { call, instance: InstanceId(uuid::Uuid::nil()), place })
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
                    inbox.first.push(Waiting {
                        position: waits.position,
                        call: waits.call,
                        event: waits.event.name.clone(),
                        priority: waits.priority,
                    });
                }
            }
        }
        inbox
    }

    /// `lock::inbox` for one instance.
    pub fn waiting(&self, instance: InstanceId) -> Vec<Waiting> {
        let all = self.inbox.range((instance, i64::MIN)..=(instance, i64::MAX));
        all.map(|(_, waits)| Waiting {
            position: waits.position,
            call: waits.call,
            event: waits.event.name.clone(),
            priority: waits.priority,
        })
        .collect()
    }

    /// `lock::known` for one call, with the outcome that the committer derives from it.
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
    pub fn take(&mut self, id: (CallId, u32), me: SessionId, now: Timestamp, variant: Variant) -> Row {
        self.grants += 1;
        let grant = self.grants;
        let row = self.calls.get_mut(&id).expect("attempts are never deleted");
        let attempt = Attempt { state: AttemptState::Executing, worker: Some(me), started_at: Some(now), ..row.attempt.clone() };
        *row = Row { attempt, grant, payload: row.payload.clone() };
        let row = row.clone();
        self.touch(row.attempt.instance);
        self.log(me, row.attempt.instance, variant);
        row
    }

    /// Records a write to the row of the instance.
    pub fn touch(&mut self, id: InstanceId) {
        self.instances.get_mut(&id).into_iter().for_each(|instance| instance.row_version += 1);
    }

    /// Records that the session began an attempt in the instance: `LOG_PUT`, in the same commit.
    pub fn log(&mut self, session: SessionId, instance: InstanceId, variant: Variant) {
        if variant != Variant::LogApart {
            self.logged += 1;
            self.log.insert((session, self.logged), BTreeSet::from([instance]));
        }
    }

    /// `session_log::read`: the log of the session, and the attempts that the session executes according to it.
    pub fn read_log(&self, session: SessionId) -> (Vec<u64>, Vec<Attempt>) {
        let rows = self.log.range((session, 0)..=(session, u64::MAX));
        let listed: BTreeSet<_> = rows.clone().flat_map(|(_, instances)| instances).copied().collect();
        let executing = self.executing().filter(|attempt| attempt.worker == Some(session) && listed.contains(&attempt.instance));
        (rows.map(|((_, number), _)| *number).collect(), executing.cloned().collect())
    }

    /// `session_log::shorten`: one row replaces these rows, with the instances in which an attempt executed when they were read.
    pub fn shorten_log(&mut self, session: SessionId, rows: &[u64], executing: BTreeSet<InstanceId>) {
        rows.iter().for_each(|number| drop(self.log.remove(&(session, *number))));
        if !executing.is_empty() {
            self.logged += 1;
            self.log.insert((session, self.logged), executing);
        }
    }

    /// `timers::due`.
    pub fn due_timers(&self, now: Timestamp) -> Vec<Timer> {
        let mut due: Vec<_> =
            self.timers.values().filter(|(timer, held)| !held && timer.due_at <= now).map(|(timer, _)| timer.clone()).collect();
        due.sort_by_key(|timer| timer.due_at);
        due
    }

    /// Returns the attempts that sessions without a lease execute, according to their logs.
    pub fn orphans(&self, now: Timestamp) -> Vec<Attempt> {
        let sessions: BTreeSet<_> = self.log.keys().map(|(session, _)| *session).collect();
        let dead = sessions.into_iter().filter(|session| self.sessions.get(session).is_none_or(|until| *until <= now));
        dead.flat_map(|session| self.read_log(session).1).collect()
    }

    /// `Engine::delete_expired`: deletes the logs of dead sessions that execute nothing, and the sessions without a log.
    pub fn bury(&mut self, now: Timestamp) {
        let working: BTreeSet<_> = self.executing().filter_map(|attempt| Some((attempt.worker?, attempt.instance))).collect();
        let sessions = &self.sessions;
        self.log.retain(|(session, _), instances| {
            let is_alive = sessions.get(session).is_some_and(|until| *until > now);
            is_alive || instances.iter().any(|instance| working.contains(&(*session, *instance)))
        });
        let log = &self.log;
        self.sessions.retain(|session, until| *until > now || log.keys().any(|(of, _)| of == session));
    }

    pub fn is_logged(&self, attempt: &Attempt) -> bool {
        let Some(session) = attempt.worker else { return false };
        self.log.range((session, 0)..=(session, u64::MAX)).any(|(_, instances)| instances.contains(&attempt.instance))
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

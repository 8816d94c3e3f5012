//! The walk on the model: one process without faults, which does due work in the same order as a test bed.

use std::collections::VecDeque;

use fsm::prelude::*;
use fsm::{HistoryEntry, HistoryEvent as Told, SendOutcome, SessionId};
use fsm_core::call::Attempt;
use fsm_core::commit::request::Reply;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Dedup, Send};
use fsm_core::ids::CallId;
use fsm_core::machine::{Machine, TIMEOUT};
use fsm_core::outcome::{Event, Outcome, Problem, VerbRequests};
use fsm_runtime::admin::look::InstanceDetails;
use fsm_runtime::handle::instance_view::InstanceView;
use fsm_store::overview::{InboxEvent, PendingTimer};

use crate::model::Model;
use crate::model::commit::Stop;
use crate::model::queue::{KEYS, Origin, Request, key_index};
use crate::model::variant::Variant;
use crate::sight;
use crate::walk::{Act, ERROR, INBOX, Script, Steps};

/// The limit of one scan for due work; there is never so much.
const AT_A_TIME: usize = 1000;

pub struct Imagined {
    model: Model,
    now: Timestamp,
    session: SessionId,
    queue: VecDeque<Request>,
}

impl Imagined {
    pub fn new(machine: Machine, variant: Variant, now: Timestamp) -> Imagined {
        let mut model = Model::new(machine, variant);
        let session = SessionId(model.fresh());
        Imagined { model, now, session, queue: VecDeque::new() }
    }

    /// Returns the outcome of a send, or `Err(())` inside for a refusal. The outer error is a constraint that the model violated.
    pub fn act(&mut self, act: &Act) -> Result<Result<Option<SendOutcome>, ()>, String> {
        let request = match act {
            Act::Advance(span) => return self.advance(*span).map(|()| Ok(None)),
            Act::Send { key, event, script, dedup, after, reject_if_busy } => {
                let payload = encoded(script);
                let digests = vec![[event.as_bytes(), payload.as_slice()].concat()];
                let dedup = dedup.map(|n| Dedup { id: format!("d{n}"), digests });
                let deliver_at = after.map(|after| self.now + after);
                let event = Event { name: (*event).to_owned(), payload };
                let id = CallId(self.model.fresh());
                let send = Send { dedup, deliver_at, reject_if_busy: *reject_if_busy, ..Send::new(id, event, INBOX) };
                Request::send(&self.model.machine, *key, send)
            }
            Act::Operate { key, act } => {
                let (reason, actor) = (Some("because".to_owned()), Some("ada".to_owned()));
                let request = Some((self.model.fresh().to_string(), Vec::new()));
                Request::operate(&self.model.machine, *key, Operation { act: act.clone(), reason, actor, request })
            }
        };
        let reply = self.carry_out(request)?;
        self.run_due()?;
        Ok(match reply {
            Ok(Reply::Sent { outcome, .. }) => Ok(Some(outcome)),
            Ok(_) => Ok(None),
            Err(()) => Err(()),
        })
    }

    /// Returns the lines of this instance.
    pub fn seen(&self, key: usize) -> Vec<String> {
        let store = &self.model.store;
        let Some(row) = store.instance(KEYS[key]) else { return Vec::new() };
        let mut attempts: Vec<Attempt> = store.calls.values().map(|row| row.attempt.clone()).collect();
        attempts.retain(|attempt| attempt.instance == row.id);
        let inbox = store.waiting(row.id).into_iter().map(|waits| InboxEvent {
            position: waits.position,
            call: waits.call,
            event: waits.event,
            since: row.updated_at,
        });
        let timers = store.timers.values().filter(|(timer, _)| timer.instance == row.id).map(|(timer, held)| PendingTimer {
            id: timer.id,
            state: timer.state.clone(),
            event: timer.event.name.clone(),
            due_at: timer.due_at,
            held: *held,
        });
        let notes = store.notes.iter().filter(|note| note.instance == row.id).map(|note| HistoryEntry {
            at: note.at,
            call: note.call,
            event: Told::Note { kind: note.kind, detail: note.detail.clone(), actor: note.actor.clone() },
        });
        let seen = InstanceView {
            row: row.clone(),
            call: None,
            timers: Vec::new(),
            waiting: Vec::new(),
            fields: Vec::new(),
            trace: None,
            parent: None,
            children: Vec::new(),
        };
        sight::lines(&InstanceDetails {
            seen,
            children: Vec::new(),
            inbox: inbox.collect(),
            full_inbox: None,
            trace: None,
            timers: timers.collect(),
            attempts,
            entries: notes.collect(),
        })
    }

    fn advance(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        while self.now < end {
            let store = &self.model.store;
            let attempts = store.live().filter(|live| !live.held).map(|live| live.scheduled_at);
            let timers = store.timers.values().filter(|(_, held)| !held).map(|(timer, _)| timer.due_at);
            let next = attempts.chain(timers).filter(|next| *next > self.now).min();
            self.now = next.map_or(end, |next| next.min(end));
            self.run_due()?;
        }
        Ok(())
    }

    fn run_due(&mut self) -> Result<(), String> {
        loop {
            while let Some(request) = self.queue.pop_front() {
                self.carry_out(request)?.map_err(|()| "a request of the engine's own is refused")?;
            }
            for timer in self.model.store.due_timers(self.now) {
                let key = key_index(self.model.store.key_of(timer.instance));
                self.queue.push_back(Request::fire(&self.model.machine, key, timer));
            }
            if !self.queue.is_empty() {
                continue;
            }
            let due = self.model.store.due(self.now, AT_A_TIME);
            if due.is_empty() {
                return Ok(());
            }
            for id in due {
                let row = self.model.store.take(id, self.session, self.now, self.model.variant);
                self.run(row.attempt, row.grant)?;
            }
        }
    }

    fn carry_out(&mut self, request: Request) -> Result<Result<Reply, ()>, String> {
        let outcome = self.model.carry_out(request, self.now, Some(self.session)).map_err(|stop| match stop {
            Stop::Broken(broken) => broken.to_string(),
            Stop::ConcurrentChange => "nobody else commits".to_owned(),
        })?;
        for run in outcome.runs {
            let row = self.model.store.calls.get(&(run.attempt.call, run.attempt.number)).ok_or("a call that runs is not stored")?;
            let grant = row.grant;
            self.run(Attempt::clone(&run.attempt), grant)?;
        }
        outcome.reply.map(|reply| reply.map_err(drop)).ok_or_else(|| "nobody else was faster".to_owned())
    }

    /// Runs the verb of this attempt.
    fn run(&mut self, attempt: Attempt, grant: u64) -> Result<(), String> {
        let store = &self.model.store;
        let key = key_index(store.key_of(attempt.instance));
        let script = |call| {
            let payload = store.calls.get(&(call, 1)).and_then(|row| row.payload.as_deref()).ok_or("a call has no payload")?;
            serde_json::from_slice::<Script>(payload).map_err(|error| error.to_string())
        };
        let kept = store.instance(KEYS[key]).and_then(|row| row.record.as_deref());
        let mut steps: Steps = kept.map_or(Ok(Steps::default()), serde_json::from_slice).map_err(|error| error.to_string())?;
        let played = match attempt.previous.filter(|_| attempt.is_catch()) {
            Some(caught) => Ok((None, script(caught)?.rescue())),
            None if attempt.event == TIMEOUT => {
                steps.attempts.push(0);
                Ok((Some(encoded(&steps)), None))
            }
            None => {
                steps.attempts.push(attempt.number);
                let is_end = self.model.machine.is_end(&attempt.to);
                script(attempt.call)?.play(attempt.number).map(|next| (Some(encoded(&steps)), next.filter(|_| !is_end)))
            }
        };
        let outcome = match played {
            Ok((record, next)) => {
                let next = next.map(|next| Event { name: "Go".into(), payload: encoded(&next) });
                Outcome::Success {
                    record,
                    verb_requests: VerbRequests { next, ..VerbRequests::default() },
                    timer: None,
                    search: Vec::new(),
                }
            }
            Err(advice) => Outcome::Failure(Problem::new(&ERROR.to_string(), advice)),
        };
        let fresh = self.model.fresh();
        self.queue.push_back(Request::complete(&self.model.machine, key, attempt, outcome, Origin::Verb(grant), fresh));
        Ok(())
    }
}

fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and names are JSON")
}

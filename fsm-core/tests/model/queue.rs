//! The requests that wait in the queue of a process.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::Timer;
use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::request::{self, Report, RequestKind};
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::Send;
use fsm_core::ids::CallId;
use fsm_core::machine::Machine;
use fsm_core::outcome::{Outcome, Outgoing};
use fsm_core::time::Timestamp;
use uuid::Uuid;

/// The keys of all instances.
pub const KEYS: [&str; 3] = ["a", "b", "c"];

/// A request as the committer gets it, with what the simulation knows of its origin.
#[derive(Debug, Clone)]
pub struct Request {
    pub key: usize,
    pub request: request::Request,
    /// The reporter, if the request is a report.
    pub origin: Origin,
    /// The verb wrote in a transaction of its own, which its report commits.
    pub own_tx: bool,
    /// The request carries out a delivery from another partition.
    pub delivery: Option<Sending>,
    /// The events of the line as they were read before the lock. Only a broken engine delivers these.
    pub read_before: Vec<Outgoing>,
}

/// One send of an event from another partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// The number of the send.
    pub number: Uuid,
    /// The end of the claim: no commit of the request begins after it.
    pub until: Timestamp,
}

/// The reporter of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The verb that runs under this grant.
    Verb(u64),
    Sweeper,
    HeldButNotRunning,
    ShutDown,
    /// The request is no report.
    None,
}

impl Request {
    fn new(machine: &Machine, key: usize, kind: RequestKind) -> Request {
        let request = request::Request::new(InstanceKey::new(&machine.name, KEYS[key]), kind);
        Request { key, request, origin: Origin::None, own_tx: false, delivery: None, read_before: Vec::new() }
    }

    pub fn send(machine: &Machine, key: usize, send: Send) -> Request {
        Request::new(machine, key, RequestKind::Send(send))
    }

    pub fn fire(machine: &Machine, key: usize, timer: Timer) -> Request {
        Request::new(machine, key, RequestKind::Fire(Box::new(timer)))
    }

    pub fn operate(machine: &Machine, key: usize, operation: Operation) -> Request {
        Request::new(machine, key, RequestKind::Operate(Box::new(operation)))
    }

    pub fn deliver(machine: &Machine, key: usize, read_before: Vec<Outgoing>) -> Request {
        Request { read_before, ..Request::new(machine, key, RequestKind::Deliver) }
    }

    /// The report of an attempt. `fresh` is the id of the call that may follow.
    pub fn complete(machine: &Machine, key: usize, attempt: Attempt, outcome: Outcome, origin: Origin, fresh: Uuid) -> Request {
        let report = Report { attempt: Arc::new(attempt), outcome, has_slot: true, fresh: CallId(fresh), trace: None };
        Request { origin, ..Request::new(machine, key, RequestKind::Complete(Box::new(report))) }
    }

    pub fn report(&self) -> Option<&Report> {
        match &self.request.kind {
            RequestKind::Complete(report) => Some(report),
            _ => None,
        }
    }

    /// Returns the instances that the request may write, one bit each.
    pub fn touches(&self) -> u8 {
        self.request.touches().iter().fold(0, |touches, target| touches | (1 << key_index(&target.key)))
    }

    /// True if one statement may carry out the request. A verb's own transaction is never a single statement.
    pub fn is_short(&self) -> bool {
        !self.own_tx && self.request.is_short()
    }
}

pub fn key_index(key: &str) -> usize {
    KEYS.iter().position(|known| *known == key).expect("only known keys are used")
}

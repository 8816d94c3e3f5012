//! The requests of a committer and a batch in progress, mirroring `committer/{request,batch_snapshot}.rs`.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Timer};
use fsm_core::decide::InstanceSnapshot;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Send, SendOutcome};
use fsm_core::ids::{CallId, SessionId};
use fsm_core::instance::Instance;
use fsm_core::outcome::{Outcome, Outgoing};
use fsm_core::time::Timestamp;

/// The keys of all instances.
pub const KEYS: [&str; 3] = ["a", "b", "c"];

/// `Request` of `committer/request.rs`.
#[derive(Debug, Clone)]
pub struct Request {
    pub key: usize,
    pub kind: RequestKind,
    pub tries: u32,
    /// The cached snapshot of its instance.
    pub cached: Option<Seen>,
}

#[derive(Debug, Clone)]
pub enum RequestKind {
    Send(Send),
    Complete(Box<Report>),
    Fire(Box<Timer>),
    Operate(Box<Operation>),
    /// The line of the instance. A broken engine stores here the events that it read before the lock.
    Deliver(Vec<Outgoing>),
}

#[derive(Debug, Clone)]
pub struct Report {
    pub attempt: Attempt,
    pub outcome: Outcome,
    pub origin: Origin,
    pub own_tx: bool,
}

/// `RowSnapshot` of `store/lock.rs`.
#[derive(Debug, Clone)]
pub struct Seen {
    pub instance: Arc<Instance>,
    pub has_timer: bool,
    /// The number of the commit that wrote the row: its row version.
    pub row_version: i64,
    /// The file version at which the row was read, if that is its guard.
    pub file_version: Option<u64>,
}

/// The reporter of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The verb that runs under this grant.
    Verb(u64),
    Sweeper,
    HeldButNotRunning,
    ShutDown,
}

/// `Reply` of `committer/request.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Sent { call: CallId, outcome: SendOutcome },
    Completed { counted: bool },
    Refused,
    Done,
}

/// A commit in progress: its locks and the changes that it will write.
pub struct BatchCommit {
    pub now: Timestamp,
    /// The session that may get the calls that the commit opens.
    pub grant: Option<SessionId>,
    pub batch: Vec<Request>,
    pub decided: Vec<Decided>,
    pub batch_snapshot: BatchSnapshot,
    /// The instances that the commit may write, one bit each. No other commit of this process works on them meanwhile.
    pub touches: u8,
    /// The instances that exist and whose rows are locked, one bit each.
    pub locks: u8,
    pub way: Way,
}

/// The method by which a batch is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Reads and writes under locks.
    Locked,
    /// Reads without locks, and writes in one statement if the instances still have these row versions.
    AtOnce([Option<i64>; KEYS.len()]),
    /// Reads without locks at this file version, and writes under the write lock if it is still the same.
    Ahead(u64),
}

pub struct Decided {
    pub reply: Reply,
    pub changes: Option<Changes>,
}

impl Decided {
    pub fn of(reply: Reply, changes: Option<Changes>) -> Decided {
        Decided { reply, changes }
    }
}

/// `BatchSnapshot` of `committer/batch_snapshot.rs`.
pub struct BatchSnapshot {
    pub snapshots: [Option<InstanceSnapshot>; KEYS.len()],
    /// The outcomes of sends that were committed before and are repeated.
    pub known: Vec<(CallId, SendOutcome)>,
}

impl Request {
    /// Returns the instances that the request may write, one bit each.
    pub fn touches(&self) -> u8 {
        let mut touches = 1 << self.key;
        if let RequestKind::Complete(report) = &self.kind
            && let Outcome::Success { verb_requests, .. } = &report.outcome
        {
            verb_requests.sends.iter().for_each(|send| touches |= 1 << key_index(&send.key));
        }
        touches
    }

    /// `Request::is_short`.
    pub fn is_short(&self) -> bool {
        self.tries == 0
            && match &self.kind {
                RequestKind::Send(_) => true,
                RequestKind::Complete(report) => !report.own_tx && report.outcome.sends().is_empty(),
                RequestKind::Fire(_) | RequestKind::Operate(_) | RequestKind::Deliver(_) => false,
            }
    }

    pub fn is_alone(&self) -> bool {
        matches!(&self.kind, RequestKind::Complete(report) if report.own_tx)
    }
}

pub fn key_index(key: &str) -> usize {
    KEYS.iter().position(|known| *known == key).expect("only known keys are used")
}

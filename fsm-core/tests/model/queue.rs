//! What is asked of a committer, and a batch of it on its trip, mirroring `committer/{request,board}.rs`.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::changes::{Changes, Timer};
use fsm_core::decide::Standing;
use fsm_core::decide::operate::Operation;
use fsm_core::decide::send::{Send, SendOutcome};
use fsm_core::ids::{CallId, SessionId};
use fsm_core::instance::Instance;
use fsm_core::outcome::Outcome;
use fsm_core::time::Timestamp;

/// The instances that there may be.
pub const KEYS: [&str; 3] = ["a", "b", "c"];

/// `Request` of `committer/request.rs`.
#[derive(Debug, Clone)]
pub struct Request {
    pub key: usize,
    pub what: What,
    pub tries: u32,
    /// What is remembered of its instance.
    pub memory: Option<Seen>,
}

#[derive(Debug, Clone)]
pub enum What {
    Send(Send),
    Settle(Box<Report>),
    Fire(Box<Timer>),
    Operate(Box<Operation>),
}

#[derive(Debug, Clone)]
pub struct Report {
    pub attempt: Attempt,
    pub outcome: Outcome,
    pub origin: Origin,
    pub own_tx: bool,
}

/// `Seen` of `store/lock.rs`.
#[derive(Debug, Clone)]
pub struct Seen {
    pub instance: Arc<Instance>,
    pub has_timer: bool,
    /// The number of the commit that left it so.
    pub stamp: u64,
    /// The epoch in which it was seen, where that is what shows that it is so still.
    pub epoch: Option<u64>,
}

/// Who reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The execution under this grant.
    Verb(u64),
    Sweeper,
    Stray,
    Drain,
}

/// `Reply` of `committer/request.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Sent { call: CallId, outcome: SendOutcome },
    Settled { counted: bool },
    Refused,
    Done,
}

/// A commit under way: what it holds in the database, and what it will write.
pub struct Trip {
    pub now: Timestamp,
    /// Who may get what it opens.
    pub grant: Option<SessionId>,
    pub batch: Vec<Request>,
    pub decided: Vec<Decided>,
    pub board: Board,
    /// The instances it may write, which no other commit of the process takes up meanwhile. One bit each.
    pub touches: u8,
    /// Those that existed: their rows are locked.
    pub locks: u8,
    pub way: Way,
}

/// How a batch is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Under locks.
    Locked,
    /// Read without a lock, and written by one statement if the instances still bear these stamps.
    AtOnce([Option<u64>; KEYS.len()]),
    /// Read without a lock in that epoch, and written in the writer's turn if it still lasts.
    Ahead(u64),
}

pub struct Decided {
    pub reply: Reply,
    pub changes: Option<Changes>,
    /// Every event that the verb sends finds room. Else its success is written as a failure.
    pub has_room: bool,
}

impl Decided {
    pub fn of(reply: Reply, changes: Option<Changes>) -> Decided {
        Decided { reply, changes, has_room: true }
    }
}

/// `Board` of `committer/board.rs`.
pub struct Board {
    pub standings: [Option<Standing>; KEYS.len()],
    /// What became of repeated sends.
    pub known: Vec<(CallId, SendOutcome)>,
}

impl Request {
    /// Every instance that carrying it out may write, one bit each.
    pub fn touches(&self) -> u8 {
        let mut touches = 1 << self.key;
        if let What::Settle(report) = &self.what
            && let Outcome::Success { asks, .. } = &report.outcome
        {
            asks.sends.iter().for_each(|send| touches |= 1 << key_index(&send.key));
        }
        touches
    }

    /// `Request::is_short`.
    pub fn is_short(&self) -> bool {
        self.tries == 0
            && match &self.what {
                What::Send(_) => true,
                What::Settle(report) => !report.own_tx && report.outcome.sends().is_empty(),
                What::Fire(_) | What::Operate(_) => false,
            }
    }

    pub fn is_alone(&self) -> bool {
        matches!(&self.what, What::Settle(report) if report.own_tx)
    }
}

pub fn key_index(key: &str) -> usize {
    KEYS.iter().position(|known| *known == key).expect("only known keys are used")
}

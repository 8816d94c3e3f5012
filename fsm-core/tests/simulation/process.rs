//! What a process remembers: its session, its queue, its commits under way, and what it runs. All of it dies with the process.

use std::time::Duration;

use fsm_core::call::Attempt;
use fsm_core::changes::Changes;
use fsm_core::ids::{CallId, SessionId};
use fsm_core::time::Timestamp;

use crate::model::queue::{KEYS, Request, Seen, Trip, What};

/// How long a session is believed after its last sign.
pub const LEASE: Duration = Duration::from_secs(8);

pub struct Process {
    pub is_alive: bool,
    pub is_stalled: bool,
    pub is_cut: bool,
    pub is_draining: bool,
    /// How far its clock is ahead.
    pub skew_us: i64,
    pub life: Life,
    /// It was kept from renewing by something else than the database since it last did.
    pub is_disturbed: bool,
    /// Since the database was last down.
    pub has_renewed: bool,
    pub queue: Vec<Request>,
    pub trips: Vec<Trip>,
    pub running: Vec<Running>,
    /// What it remembers of each instance.
    pub memories: [Option<Seen>; KEYS.len()],
    /// Held and not running when it last looked.
    pub strays: Vec<Attempt>,
    /// Found due by a broken engine that claims in two statements.
    pub found: Vec<(CallId, u32)>,
    /// Attempts that a broken engine inserts later.
    pub halves: Vec<Changes>,
    /// The commits of its committer, as far as it heard of them: all others begin an epoch.
    pub commits: u64,
    /// The epoch when its committer last had the writer's turn.
    pub epoch: Option<u64>,
}

/// `Life` of `session.rs`.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    pub id: SessionId,
    pub is_known: bool,
    pub until: Timestamp,
    pub since: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Running {
    pub attempt: Attempt,
    pub key: usize,
    pub grant: u64,
    /// It ended, and its report is not answered yet.
    pub has_ended: bool,
}

impl Process {
    pub fn dead() -> Process {
        Process {
            is_alive: false,
            is_stalled: false,
            is_cut: false,
            is_draining: false,
            skew_us: 0,
            life: Life { id: SessionId(uuid::Uuid::nil()), is_known: false, until: Timestamp::default(), since: Timestamp::default() },
            is_disturbed: false,
            has_renewed: false,
            queue: Vec::new(),
            trips: Vec::new(),
            running: Vec::new(),
            memories: Default::default(),
            strays: Vec::new(),
            found: Vec::new(),
            halves: Vec::new(),
            commits: 0,
            epoch: None,
        }
    }

    pub fn born(session: SessionId, skew_us: i64) -> Process {
        let dead = Process::dead();
        Process { is_alive: true, skew_us, life: Life { id: session, ..dead.life }, ..dead }
    }

    /// `Session::certain`.
    pub fn session(&self, now: Timestamp) -> Option<SessionId> {
        (self.life.until > now).then_some(self.life.id)
    }

    pub fn runs(&self, id: (CallId, u32)) -> bool {
        self.running.iter().any(|running| (running.attempt.call, running.attempt.number) == id)
    }

    pub fn put(&mut self, key: usize, what: What) {
        self.queue.push(Request { key, what, tries: 0, memory: None });
    }
}

//! The memory of a process: its session, its queue, its commits in progress and its running attempts. All of it is lost when the process
//! dies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fsm_core::call::Attempt;
use fsm_core::changes::Changes;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;

use fsm_core::commit::partition_delivery::SendAnswer;
use fsm_core::commit::rows::CachedSnapshot;
use uuid::Uuid;

use crate::model::commit::Commit;
use crate::model::queue::{KEYS, Request, Sending};
use crate::model::variant::Variant;

/// The lease duration.
pub const LEASE: Duration = Duration::from_secs(8);

pub struct Process {
    pub is_alive: bool,
    pub is_stalled: bool,
    pub is_cut: bool,
    pub is_shutting_down: bool,
    /// The difference between its clock and the world's, in microseconds; positive is ahead.
    pub skew_us: i64,
    pub home: ProcessIdentity,
    pub life: Life,
    /// True if something other than the database kept the process from renewing its lease since the last renewal.
    pub is_disturbed: bool,
    /// True if the lease was renewed since the database was last down.
    pub has_renewed: bool,
    pub queue: Vec<Request>,
    pub commits_in_flight: Vec<Commit>,
    pub running: Vec<Running>,
    /// The sends of events from other partitions that a delivery of this process waits for, and the answers to them.
    pub awaited: BTreeSet<Uuid>,
    pub answers: BTreeMap<Uuid, SendAnswer>,
    /// The snapshot cache.
    pub cache: [Option<CachedSnapshot>; KEYS.len()],
    /// The attempts that were held and not running at the last check.
    pub idle_attempts: Vec<Attempt>,
    /// The rows of its log at that check, and the instances in which it executed an attempt then.
    pub log: Vec<u64>,
    pub executing: BTreeSet<InstanceId>,
    /// The attempts that a broken engine, which claims in two statements, found due.
    pub found: Vec<(CallId, u32)>,
    /// The changes that a broken engine writes later.
    pub halves: Vec<Changes>,
    /// The commits of its committer whose outcome it knows. Any other commit changes the file version.
    pub commits: u64,
    /// The file version when its committer last held the write lock.
    pub file_version: Option<u64>,
}

/// `SessionState` of `session.rs`.
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
    /// True if the verb ended and its report is not answered yet.
    pub has_ended: bool,
}

impl Process {
    pub fn dead() -> Process {
        Process {
            is_alive: false,
            is_stalled: false,
            is_cut: false,
            is_shutting_down: false,
            skew_us: 0,
            home: ProcessIdentity { host: String::new(), pid: 0, place: None },
            life: Life { id: SessionId(uuid::Uuid::nil()), is_known: false, until: Timestamp::default(), since: Timestamp::default() },
            is_disturbed: false,
            has_renewed: false,
            queue: Vec::new(),
            commits_in_flight: Vec::new(),
            running: Vec::new(),
            awaited: BTreeSet::new(),
            answers: BTreeMap::new(),
            cache: Default::default(),
            idle_attempts: Vec::new(),
            log: Vec::new(),
            executing: BTreeSet::new(),
            found: Vec::new(),
            halves: Vec::new(),
            commits: 0,
            file_version: None,
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

    /// `Request::begin`: a commit of the request may begin. It may not if the delivery has given up the send, or if its claim has ended.
    pub fn wants(&self, request: &Request, now: Timestamp, variant: Variant) -> bool {
        let is_wanted = |sending: Sending| self.awaited.contains(&sending.number) && now < sending.until;
        variant == Variant::PartitionSendOutlivesItsClaim || request.delivery.is_none_or(is_wanted)
    }

    pub fn runs(&self, id: (CallId, u32)) -> bool {
        self.running.iter().any(|running| (running.attempt.call, running.attempt.number) == id)
    }
}

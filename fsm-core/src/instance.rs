//! One living run of a machine, as a row of `fsm_instances`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::call::UnknownWord;
use crate::ids::{CallId, InstanceId};
use crate::outcome::Veiled;
use crate::time::Timestamp;

/// Whether an instance lives. Where it stands is its state; the two are kept apart, so that failing never loses the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It takes events.
    Running,
    /// It rests in an end state.
    Completed,
    /// Its newest call is exhausted; an operator decides.
    Error,
    /// An operator ended it.
    Cancelled,
}

impl Status {
    /// Every status, in the order in which they are shown.
    pub const ALL: [Status; 4] = [Status::Running, Status::Completed, Status::Error, Status::Cancelled];

    /// The word in the database and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Completed => "completed",
            Status::Error => "error",
            Status::Cancelled => "cancelled",
        }
    }

    /// Completed or cancelled: it takes no more events.
    pub fn is_ended(self) -> bool {
        matches!(self, Status::Completed | Status::Cancelled)
    }
}

/// A row of `fsm_instances`.
#[derive(Clone, PartialEq)]
pub struct Instance {
    /// Its identity.
    pub id: InstanceId,
    /// The graph it lives in.
    pub machine: String,
    /// The user's name for it, unique within the machine.
    pub key: String,
    /// Whether it lives.
    pub status: Status,
    /// Where it stands; `None` before its first transition.
    pub state: Option<String>,
    /// An operator stopped it: it starts no attempt.
    pub paused: bool,
    /// How many transitions it has made.
    pub version: i64,
    /// Its own data, encoded; `None` until a verb first wrote it.
    pub record: Option<Vec<u8>>,
    /// Its newest attempt.
    pub newest: Option<(CallId, u32)>,
    /// Whether that attempt is live.
    pub is_open: bool,
    /// Why it is in error.
    pub error: Option<String>,
    /// The position of the first event that waits.
    pub inbox_head: i64,
    /// The position that the next event to wait will get.
    pub inbox_tail: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl Instance {
    /// An instance that nothing has happened to.
    pub fn new(id: InstanceId, machine: &str, key: &str, now: Timestamp) -> Instance {
        Instance {
            id,
            machine: machine.to_owned(),
            key: key.to_owned(),
            status: Status::Running,
            state: None,
            paused: false,
            version: 0,
            record: None,
            newest: None,
            is_open: false,
            error: None,
            inbox_head: 0,
            inbox_tail: 0,
            created_at: now,
            updated_at: now,
        }
    }

    /// How many events wait.
    pub fn inbox_len(&self) -> u64 {
        u64::try_from(self.inbox_tail.saturating_sub(self.inbox_head)).unwrap_or(0)
    }

    /// Nothing is executing, scheduled or in the inbox, or it is in error: what `settled` waits for.
    pub fn is_settled(&self) -> bool {
        self.status == Status::Error || (!self.is_open && self.inbox_len() == 0)
    }
}

/// All but what the record says.
impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("machine", &self.machine)
            .field("key", &self.key)
            .field("status", &self.status)
            .field("state", &self.state)
            .field("paused", &self.paused)
            .field("version", &self.version)
            .field("record", &self.record.as_deref().map(Veiled))
            .field("newest", &self.newest)
            .field("is_open", &self.is_open)
            .field("error", &self.error)
            .field("inbox_head", &self.inbox_head)
            .field("inbox_tail", &self.inbox_tail)
            .field("created_at", &self.created_at)
            .field("updated_at", &self.updated_at)
            .finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = UnknownWord;
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Status::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| UnknownWord(word.into()))
    }
}

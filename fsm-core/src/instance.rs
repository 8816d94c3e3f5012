//! One living run of a machine, as a row of `fsm_instances`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::call::UnknownName;
use crate::family::{Family, Parent};
use crate::ids::{CallId, InstanceId};
use crate::outcome::HiddenBytes;
use crate::time::Timestamp;

/// The life cycle of an instance. Status and state are separate, so that a failure never loses the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The instance takes events.
    Running,
    /// The instance is in an end state.
    Completed,
    /// The newest call is exhausted; an operator decides.
    Error,
    /// An operator cancelled the instance.
    Cancelled,
}

impl Status {
    /// Every status, in the order of the screens.
    pub const ALL: [Status; 4] = [Status::Running, Status::Completed, Status::Error, Status::Cancelled];

    /// The name in the database and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Completed => "completed",
            Status::Error => "error",
            Status::Cancelled => "cancelled",
        }
    }

    /// True for completed and cancelled: the instance takes no more events.
    pub fn is_ended(self) -> bool {
        matches!(self, Status::Completed | Status::Cancelled)
    }
}

/// A row of `fsm_instances`.
#[derive(Clone, PartialEq)]
pub struct Instance {
    /// Its identity.
    pub id: InstanceId,
    /// The name of its machine.
    pub machine: String,
    /// The user's name for it, unique within the machine.
    pub key: String,
    /// The life cycle.
    pub status: Status,
    /// The state; `None` before the first transition.
    pub state: Option<String>,
    /// The time of the transition that entered the state; `None` before the first one.
    pub entered_at: Option<Timestamp>,
    /// True while the instance is paused: no attempt of it starts.
    pub paused: bool,
    /// The number of its transitions.
    pub version: i64,
    /// The encoded record; `None` until a verb has written it.
    pub record: Option<Vec<u8>>,
    /// The newest attempt.
    pub newest: Option<(CallId, u32)>,
    /// True if the newest attempt is scheduled or executing.
    pub is_open: bool,
    /// The error text of an instance in error.
    pub error: Option<String>,
    /// The position of the first waiting event.
    pub inbox_head: i64,
    /// The position of the next event that joins the inbox.
    pub inbox_tail: i64,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The number that changes with each write to the row.
    pub row_version: i64,
    /// The instance that started it as a child.
    pub parent: Option<Parent>,
    /// Its own children.
    pub family: Family,
    /// The value of the search field by which the machine shares its slots; `None` without `fair_by`.
    pub fair_by: Option<String>,
}

impl Instance {
    /// A new instance without transitions.
    pub fn new(id: InstanceId, machine: &str, key: &str, now: Timestamp) -> Instance {
        Instance {
            id,
            machine: machine.to_owned(),
            key: key.to_owned(),
            status: Status::Running,
            state: None,
            entered_at: None,
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
            row_version: 0,
            parent: None,
            family: Family::None,
            fair_by: None,
        }
    }

    /// The number of waiting events.
    pub fn inbox_len(&self) -> u64 {
        u64::try_from(self.inbox_tail.saturating_sub(self.inbox_head)).unwrap_or(0)
    }

    /// True if no call was ever begun for it and no event waits. Such an instance exists for events that are delivered later.
    pub fn has_not_begun(&self) -> bool {
        self.status == Status::Running && self.state.is_none() && self.newest.is_none() && self.inbox_len() == 0
    }

    /// True if nothing is executing, scheduled or in the inbox, or if the instance is in error. `settled` waits for this.
    pub fn is_settled(&self) -> bool {
        self.status == Status::Error || (!self.is_open && self.inbox_len() == 0)
    }
}

/// Everything except the content of the record.
impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("machine", &self.machine)
            .field("key", &self.key)
            .field("status", &self.status)
            .field("state", &self.state)
            .field("entered_at", &self.entered_at)
            .field("paused", &self.paused)
            .field("version", &self.version)
            .field("record", &self.record.as_deref().map(HiddenBytes))
            .field("newest", &self.newest)
            .field("is_open", &self.is_open)
            .field("error", &self.error)
            .field("inbox_head", &self.inbox_head)
            .field("inbox_tail", &self.inbox_tail)
            .field("created_at", &self.created_at)
            .field("updated_at", &self.updated_at)
            .field("row_version", &self.row_version)
            .field("parent", &self.parent)
            .field("family", &self.family)
            .finish()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = UnknownName;
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Status::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| UnknownName(word.into()))
    }
}

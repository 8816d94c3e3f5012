//! What a handle shows: instances, their open calls, attempts, and pages of them.

use std::fmt;

use fsm_core::call::{Attempt as Row, AttemptState};
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::instance::{Instance as InstanceRow, Status};
use fsm_core::time::Timestamp;

use crate::error::Error;
use crate::registry::Machine;

/// An instance as it was when it was read.
pub struct Instance<M: Machine> {
    /// Its identity.
    pub id: InstanceId,
    /// The user's name for it.
    pub key: String,
    /// Where it stands; `None` before its first transition.
    pub state: Option<M::State>,
    /// Whether it lives.
    pub status: Status,
    /// Whether an operator stopped it.
    pub paused: bool,
    /// Its own data.
    pub record: M::Record,
    /// How many transitions it has made.
    pub version: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Its open call.
    pub call: Option<OpenCall>,
    /// How many events wait for it.
    pub inbox_len: u64,
    /// Why it is in error.
    pub error: Option<String>,
}

/// A call that is scheduled or executing.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// Its identity, the same over all attempts.
    pub id: CallId,
    /// What runs.
    pub verb: String,
    /// What it is given.
    pub event: String,
    /// Scheduled or executing.
    pub state: AttemptState,
    /// The number of the attempt that is scheduled or executing, from 1.
    pub attempt: u32,
    /// How many attempts there are in all; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// How many retries are left after this attempt; `None` is unlimited.
    pub retries_left: Option<u32>,
    /// When the attempt may start, or might have.
    pub next_at: Timestamp,
    /// Why the attempt before it failed.
    pub last_error: Option<String>,
    /// The session that executes it.
    pub worker: Option<SessionId>,
}

/// One attempt of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The call.
    pub call: CallId,
    /// From 1.
    pub number: u32,
    /// What runs.
    pub verb: String,
    /// What it is given.
    pub event: String,
    /// The state the instance rests in meanwhile.
    pub from: Option<String>,
    /// The state it enters on success.
    pub to: String,
    /// How far it has come, or how it ended.
    pub state: AttemptState,
    /// When it may start.
    pub scheduled_at: Timestamp,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When its end was committed.
    pub finished_at: Option<Timestamp>,
    /// Why it failed.
    pub error: Option<String>,
    /// The session that runs or ran it.
    pub worker: Option<SessionId>,
}

/// Which instances to list. Everything that is not said lets all through.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) status: Option<Status>,
    pub(crate) state: Option<String>,
    pub(crate) paused: Option<bool>,
    pub(crate) after: Option<Cursor>,
    pub(crate) limit: u32,
}

/// Where a page ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor(pub(crate) InstanceId);

/// Some of many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// These.
    pub items: Vec<T>,
    /// Where the next ones begin; `None` after the last.
    pub next: Option<Cursor>,
}

/// How many instances have this state and status.
pub struct Count<M: Machine> {
    /// Where they stand.
    pub state: Option<M::State>,
    /// Whether they live.
    pub status: Status,
    /// How many.
    pub count: u64,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { status: None, state: None, paused: None, after: None, limit: 100 }
    }
}

impl Filter {
    /// The longest page.
    pub(crate) const MOST: u32 = 1000;

    /// Only instances of this status.
    pub fn status(mut self, status: Status) -> Filter {
        self.status = Some(status);
        self
    }

    /// Only instances in this state.
    pub fn state(mut self, state: impl fmt::Display) -> Filter {
        self.state = Some(state.to_string());
        self
    }

    /// Only instances that are, or are not, paused.
    pub fn paused(mut self, paused: bool) -> Filter {
        self.paused = Some(paused);
        self
    }

    /// At most so many, from 1 to 1,000; 100 unless set.
    pub fn limit(mut self, limit: u32) -> Filter {
        self.limit = limit;
        self
    }

    /// Those after the end of an earlier page.
    pub fn after(mut self, cursor: Cursor) -> Filter {
        self.after = Some(cursor);
        self
    }
}

impl<M: Machine> Instance<M> {
    /// The row as users see it, with its live attempt and the one before that.
    pub(crate) fn seen(row: InstanceRow, live: Option<&Row>, before: Option<&Row>) -> Result<Instance<M>, Error> {
        let record = match &row.record {
            None => M::Record::default(),
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| {
                Error::input(format!("the record of `{}` `{}` does not decode: {error}", row.machine, row.key.escape_debug()))
            })?,
        };
        Ok(Instance {
            inbox_len: row.inbox_len(),
            id: row.id,
            key: row.key,
            state: state::<M>(row.state)?,
            status: row.status,
            paused: row.paused,
            record,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            call: live.map(|live| OpenCall::seen(live, before)),
            error: row.error,
        })
    }
}

/// A state's name from the database as the machine's own type.
pub(crate) fn state<M: Machine>(name: Option<String>) -> Result<Option<M::State>, Error> {
    let Some(name) = name else { return Ok(None) };
    name.parse().map(Some).map_err(|_| {
        Error::input(format!(
            "the database has \"{}\" instances in the state `{name}`, which this program's machine does not have",
            M::NAME
        ))
    })
}

impl OpenCall {
    fn seen(live: &Row, before: Option<&Row>) -> OpenCall {
        OpenCall {
            id: live.call,
            verb: live.verb.clone(),
            event: live.event.clone(),
            state: live.state,
            attempt: live.number,
            max_attempts: live.budget.max_attempts(live.number),
            retries_left: live.budget.remaining,
            next_at: live.scheduled_at,
            last_error: before.and_then(|before| before.error.clone()),
            worker: live.worker,
        }
    }
}

impl From<Row> for Attempt {
    fn from(row: Row) -> Attempt {
        Attempt {
            call: row.call,
            number: row.number,
            verb: row.verb,
            event: row.event,
            from: row.from,
            to: row.to,
            state: row.state,
            scheduled_at: row.scheduled_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            error: row.error,
            worker: row.worker,
        }
    }
}

impl<M: Machine> Clone for Instance<M>
where
    M::Record: Clone,
{
    fn clone(&self) -> Self {
        Instance { key: self.key.clone(), record: self.record.clone(), call: self.call.clone(), error: self.error.clone(), ..*self }
    }
}

impl<M: Machine> fmt::Debug for Instance<M>
where
    M::Record: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("key", &self.key)
            .field("state", &self.state)
            .field("status", &self.status)
            .field("paused", &self.paused)
            .field("record", &self.record)
            .field("version", &self.version)
            .field("call", &self.call)
            .field("inbox_len", &self.inbox_len)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> fmt::Debug for Count<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {:?}", self.count, self.status, self.state)
    }
}

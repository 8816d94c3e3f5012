//! The public data types of a handle: instances, attempts, filters and pages.

use std::fmt;
use std::time::Duration;

use fsm_core::call::{Attempt as Row, AttemptState};
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::instance::Status;
use fsm_core::priority::Priority;
use fsm_core::search::{SearchField, serialize_fields};
use fsm_core::time::{Timestamp, serialize_optional_micros, serialize_optional_text, serialize_text};
use fsm_core::trace::TraceContext;
use fsm_store::family::{ChildCount, Relative};
use fsm_store::overview::{InboxEvent, PendingTimer};
use fsm_store::pages::After;
use serde::Serialize;

use super::activity::{Activity, OpenCall, took};
use super::instance_view::InstanceView;
use crate::data_protection::{DataProtection, Owner};
use crate::error::{Error, ErrorKind};
use crate::guard;
use crate::redact::Redactable;
use crate::registry::Machine;
pub use fsm_store::pages::Unreadable;

/// An instance as it was when it was read.
///
/// It serialises with the names of its fields: points in time as RFC 3339 texts, durations in microseconds, the record and the state as they
/// serialise themselves.
#[derive(Serialize)]
#[serde(bound = "")]
pub struct Instance<M: Machine> {
    /// The id.
    pub id: InstanceId,
    /// The key, unique within the machine.
    pub key: String,
    /// The state; `None` before the first transition.
    pub state: Option<M::State>,
    /// The time of the transition that entered the state; `None` before the first one.
    #[serde(serialize_with = "serialize_optional_text")]
    pub entered_at: Option<Timestamp>,
    /// The status: running, completed, error or cancelled.
    pub status: Status,
    /// True while an operator has paused it.
    pub paused: bool,
    /// The record, or its default value if none was stored yet.
    pub record: M::Record,
    /// The number of transitions.
    pub version: i64,
    /// The time of its creation.
    #[serde(serialize_with = "serialize_text")]
    pub created_at: Timestamp,
    /// The time of its last change.
    #[serde(serialize_with = "serialize_text")]
    pub updated_at: Timestamp,
    /// The open call.
    pub call: Option<OpenCall>,
    /// The number of events in the inbox.
    pub inbox_len: u64,
    /// The first 100 events of the inbox, in order.
    pub waiting: Vec<InboxEvent>,
    /// The timer of the state and the delayed sends to the instance, the first due first: at most 100, and none once the instance has ended.
    ///
    /// `get` and `list` return all of them. `settled`, `wait` and `watch` return the timer of the state; they omit delayed sends if they need not
    /// read the database.
    pub timers: Vec<PendingTimer>,
    /// The search fields, in the order of their declaration: the values that are stored. Before a verb has written the record, they are those of
    /// the event that created the instance, as far as it has members of their names. They serialise as a map.
    #[serde(serialize_with = "serialize_fields")]
    pub fields: Vec<SearchField>,
    /// The error, if the status is error.
    pub error: Option<String>,
    /// The trace of the newest call: that of its sender, or of its newest attempt that has ended. Only `get` returns it, and only in a process
    /// whose spans have traces or that named one with [`SendRequest::trace`](super::send::SendRequest::trace).
    pub trace: Option<TraceContext>,
    /// The instance that started it with [`Ctx::child`](crate::context::Ctx::child); `None` if there is none, or if retention has deleted it. Only
    /// `get` returns it.
    pub parent: Option<Relative>,
    /// The number of its children by machine, state and status, also of those that ended long ago. Only `get` returns them. Children in other
    /// partitions are running and without a state until they have ended.
    /// [`Filter::parent`] lists the children. The index entries of all of them are counted, so that a parent of a million is slow to get.
    pub children: Vec<ChildCount>,
}

/// One attempt of one call. It serialises with the names of its fields: points in time as RFC 3339 texts, durations in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    /// The call.
    pub call: CallId,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The maximum number of attempts, as known when this one was scheduled; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// The number of retries that remained after this attempt; `None` is unlimited.
    pub retries_left: Option<u32>,
    /// The number of earlier attempts of the call that snoozed.
    pub snoozes: u32,
    /// The verb.
    pub verb: String,
    /// The event type.
    pub event: String,
    /// The state of the instance during the attempt.
    pub from: Option<String>,
    /// The state it enters on success. For a catch verb, the state that the exhausted call would have entered.
    pub to: String,
    /// The present state of the attempt, or its outcome.
    pub state: AttemptState,
    /// The time at which it may start.
    #[serde(serialize_with = "serialize_text")]
    pub scheduled_at: Timestamp,
    /// The time of the claim.
    #[serde(serialize_with = "serialize_optional_text")]
    pub started_at: Option<Timestamp>,
    /// The time at which its outcome was committed.
    #[serde(serialize_with = "serialize_optional_text")]
    pub finished_at: Option<Timestamp>,
    /// The duration from the claim to the commit of the outcome.
    #[serde(rename = "took_us", serialize_with = "serialize_optional_micros")]
    pub took: Option<Duration>,
    /// The error, if it failed.
    pub error: Option<String>,
    /// The session that runs or ran the attempt.
    pub worker: Option<SessionId>,
    /// The priority of the call.
    pub priority: Priority,
}

/// A selection of instances for a list. A condition that is not set matches all instances.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) status: Option<Status>,
    pub(crate) state: Option<String>,
    pub(crate) paused: Option<bool>,
    pub(crate) key_prefix: Option<String>,
    pub(crate) retrying: bool,
    pub(crate) search: Vec<SearchField>,
    pub(crate) parent: Option<InstanceId>,
    pub(crate) after: Option<Cursor>,
    pub(crate) limit: u32,
}

/// The end of a page, from which the next page continues.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(pub(crate) After);

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The cursor for the next page; `None` on the last page.
    pub next: Option<Cursor>,
    /// Instances on this page that this program cannot read.
    pub unreadable: Vec<Unreadable>,
}

/// The number of instances with a certain state and status.
pub struct Count<M: Machine> {
    /// The state.
    pub state: Option<M::State>,
    /// The name of a state that this program's machine lacks; `state` is then `None`.
    pub unknown: Option<String>,
    /// The status.
    pub status: Status,
    /// The number of instances.
    pub count: u64,
}

impl Default for Filter {
    fn default() -> Filter {
        let search = Vec::new();
        Filter { status: None, state: None, paused: None, key_prefix: None, retrying: false, search, parent: None, after: None, limit: 100 }
    }
}

impl Filter {
    /// The maximum length of a page.
    pub(crate) const MOST: u32 = 1000;

    /// Selects instances with this status.
    pub fn status(mut self, status: Status) -> Filter {
        self.status = Some(status);
        self
    }

    /// Selects instances in this state.
    pub fn state(mut self, state: impl fmt::Display) -> Filter {
        self.state = Some(state.to_string());
        self
    }

    /// Selects instances that are paused, or that are not.
    pub fn paused(mut self, paused: bool) -> Filter {
        self.paused = Some(paused);
        self
    }

    /// Only instances whose key begins with `prefix`. The list is then in the order of the keys, byte by byte, and reads no other instances.
    ///
    /// ```
    /// # use fsm_runtime::handle::view::Filter;
    /// let of_march = Filter::default().key_prefix("2026-03-");
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Filter {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// With `true`, only instances whose open attempt follows one that failed or was lost. `false` lets all through.
    pub fn retrying(mut self, retrying: bool) -> Filter {
        self.retrying = retrying;
        self
    }

    /// Only instances whose search field `name` has this value. Several fields all have to match. The list is then in the order of the keys,
    /// byte by byte, also together with [`key_prefix`](Filter::key_prefix), and reads no instances with other values.
    ///
    /// A name that the machine does not declare under `search` is an `is_input` error of the list; its text has the declared names. Values are
    /// compared as they are stored: their first 255 bytes.
    ///
    /// ```
    /// # use fsm_runtime::handle::view::Filter;
    /// let of_customer = Filter::default().field("customer", "c-77").key_prefix("2026-");
    /// ```
    pub fn field(mut self, name: impl AsRef<str>, value: impl fmt::Display) -> Filter {
        self.search.push(SearchField::new(name.as_ref(), &value.to_string()));
        self
    }

    /// Only the children that this instance started, which are found without reading others. With [`field`](Filter::field), an `is_input` error of
    /// the list.
    pub fn parent(mut self, parent: InstanceId) -> Filter {
        self.parent = Some(parent);
        self
    }

    /// The maximum number of instances on a page, from 1 to 1,000; 100 by default.
    pub fn limit(mut self, limit: u32) -> Filter {
        self.limit = limit;
        self
    }

    /// Continues after the end of an earlier page.
    pub fn after(mut self, cursor: Cursor) -> Filter {
        self.after = Some(cursor);
        self
    }
}

impl<M: Machine> Instance<M> {
    /// Converts the row to the machine's own types.
    pub(crate) fn of(
        InstanceView { row, call, timers, waiting, fields, trace, parent, children }: InstanceView,
        data_protection: &DataProtection,
    ) -> Result<Instance<M>, Error> {
        let broken = |why: String| {
            // The decoding error quotes values, so it is redacted.
            let why = data_protection.redaction.of(Redactable::error(&row.machine, "", &why));
            Error::other(ErrorKind::Unreadable, format!("the record of `{}` `{}` {why}", row.machine, row.key.escape_debug()))
        };
        let record = match &row.record {
            None => guard::guarded("its `Default`", M::Record::default).map_err(broken)?,
            Some(bytes) => {
                let plain =
                    data_protection.open(&Owner::of(&row).record(), bytes).map_err(|why| broken(format!("cannot be read: {why}")))?;
                let decoded = guard::guarded("its `Deserialize`", || serde_json::from_slice(&plain).map_err(|error| error.to_string()));
                decoded.flatten().map_err(|why| broken(format!("does not decode: {why}")))?
            }
        };
        Ok(Instance {
            inbox_len: row.inbox_len(),
            id: row.id,
            state: state::<M>(row.state.as_deref()).map_err(|name| unknown_state::<M>(&row.key, name))?,
            entered_at: row.entered_at,
            key: row.key,
            status: row.status,
            paused: row.paused,
            record,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
            call,
            waiting,
            timers,
            fields,
            error: row.error,
            trace,
            parent,
            children,
        })
    }
}

impl<M: Machine> Instance<M> {
    /// The present activity of the instance.
    pub fn activity(&self) -> Activity {
        Activity::of(self.status, self.call.as_ref(), self.paused, self.error.as_deref())
    }
}

/// Parses a state's name from the database. `Err` is the name if the machine has no such state.
fn state<M: Machine>(name: Option<&str>) -> Result<Option<M::State>, &str> {
    name.map(|name| name.parse().map_err(|_| name)).transpose()
}

fn unknown_state<M: Machine>(key: &str, name: &str) -> Error {
    let (machine, key) = (M::NAME, key.escape_debug());
    Error::other(ErrorKind::Unreadable, format!("`{machine}` `{key}` is in the state `{name}`, which this program's machine does not have"))
}

impl<M: Machine> Count<M> {
    pub(crate) fn of((status, name, count): (Status, Option<String>, u64)) -> Count<M> {
        match state::<M>(name.as_deref()) {
            Ok(state) => Count { state, unknown: None, status, count },
            Err(_) => Count { state: None, unknown: name, status, count },
        }
    }
}

impl From<Row> for Attempt {
    fn from(row: Row) -> Attempt {
        Attempt {
            call: row.call,
            number: row.number,
            max_attempts: row.retry_state.max_attempts(row.number),
            retries_left: row.retry_state.remaining,
            snoozes: row.retry_state.snoozes,
            took: took(&row),
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
            priority: row.priority,
        }
    }
}

impl<M: Machine> Clone for Instance<M>
where
    M::Record: Clone,
{
    fn clone(&self) -> Self {
        Instance {
            key: self.key.clone(),
            record: self.record.clone(),
            call: self.call.clone(),
            error: self.error.clone(),
            waiting: self.waiting.clone(),
            timers: self.timers.clone(),
            fields: self.fields.clone(),
            trace: self.trace.clone(),
            parent: self.parent.clone(),
            children: self.children.clone(),
            ..*self
        }
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
            .field("timers", &self.timers)
            .field("fields", &self.fields)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> fmt::Debug for Count<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unknown {
            Some(name) => write!(f, "{} {} in `{name}`", self.count, self.status),
            None => write!(f, "{} {} in {:?}", self.count, self.status, self.state),
        }
    }
}

//! The changes that one decision makes to one instance, as a value. The store writes all of them or none.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{Attempt, AttemptState};
use crate::family::{Family, Link};
use crate::ids::{CallId, InstanceId, SessionId, TimerId};
use crate::instance::{Instance, Status};
use crate::outcome::{Event, HiddenBytes};
use crate::priority::Priority;
use crate::retry::RetryState;
use crate::search::SearchField;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// The changes to one instance, written in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The instance's new row.
    pub instance: Instance,
    /// The status, the pause flag and the family of the current row.
    pub was: (Status, bool, Family),
    /// The row does not exist yet and is inserted.
    pub is_new: bool,
    /// The attempt that ends. This is a guard: nothing is written if the attempt is no longer as expected.
    pub close: Option<Close>,
    /// The attempt that is opened.
    pub open: Option<Open>,
    /// The live attempt whose `held` flag becomes the instance's `paused`.
    pub hold: Option<(CallId, u32)>,
    /// The new retry state of the scheduled attempt. This is a guard: nothing is written if the attempt is no longer scheduled.
    pub retry_state: Option<Box<(CallId, u32, RetryState)>>,
    /// An event that joins the inbox: behind all others, or in front of them if it interrupts.
    pub waits: Option<Waits>,
    /// The inbox positions that are removed, because their events were taken or rejected.
    pub inbox_taken: Option<Range<i64>>,
    /// True if the stored forecast of the inbox is no longer valid.
    pub is_forecast_stale: bool,
    /// The changes to timers.
    pub timers: Vec<TimerChange>,
    /// The new history entries that are not attempts.
    pub notes: Vec<Note>,
    /// The deduplication entry.
    pub request: Option<Request>,
    /// The new values of search fields. A field that is not among them keeps its value.
    pub search: Vec<SearchField>,
    /// The trace contexts of calls, added by the runtime.
    pub traces: Vec<(CallId, TraceContext)>,
    /// The parent of a new instance that is started as a child.
    pub link: Option<Box<Link>>,
}

/// The end of an attempt, with the guard under which it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Close {
    /// The call of the attempt.
    pub call: CallId,
    /// The number of the attempt.
    pub number: u32,
    /// The state that the attempt must still be in.
    pub expected: AttemptState,
    /// The session that must still hold the attempt.
    pub held_by: Option<SessionId>,
    /// The limit of which it frees a place.
    pub frees: Option<String>,
    /// The new state.
    pub becomes: AttemptState,
    /// The time.
    pub finished_at: Timestamp,
    /// The error text of a failure.
    pub error: Option<String>,
}

/// A new attempt, and the payload of its call unless the attempt before was of the same call.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// The row of the attempt.
    pub attempt: Arc<Attempt>,
    /// The payload of the call; `None` if the row has it already.
    pub payload: Option<Payload>,
}

/// The source of the payload of a new call.
#[derive(Clone, PartialEq)]
pub enum Payload {
    /// The request carries it.
    Bytes(Vec<u8>),
    /// The inbox holds it at this position.
    Inbox(i64),
    /// The payload of an exhausted call, wrapped for a catch verb.
    Caught {
        /// The exhausted call.
        call: CallId,
        /// The last error of that call.
        error: String,
        /// The number of its attempts.
        attempts: u32,
    },
    /// The payload of the call itself, which a catch verb caught and which is run again.
    Again(CallId),
}

/// An event that joins the inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// The position in the inbox.
    pub position: i64,
    /// The id of the call that the event becomes when it is taken.
    pub call: CallId,
    /// The event.
    pub event: Event,
    /// The priority of the call. It does not change the place in the inbox.
    pub priority: Priority,
    /// The states that are reachable after this event; `None` if the code that accepted the event cannot determine them.
    pub forecast: Option<Forecast>,
}

/// The forecast of an inbox: the states that the instance can reach when its open call and all waiting events have been processed. It is
/// stored with the last waiting event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The fingerprint of the graph that the forecast was made with (`Machine::graph`).
    pub graph: u64,
    /// The reachable states; `None` stands for an instance that has not started.
    pub states: Vec<Option<String>>,
}

/// A row of the inbox without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The position in the inbox.
    pub position: i64,
    /// The id of the call that the event becomes when it is taken.
    pub call: CallId,
    /// The event type.
    pub event: String,
    /// The priority of the call that the event becomes.
    pub priority: Priority,
}

/// A row of `fsm_timers`: a time at which an event is delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Timer {
    /// Its identity.
    pub id: TimerId,
    /// The instance that the timer belongs to.
    pub instance: InstanceId,
    /// The state that the timer belongs to; `None` for a delayed send, which is independent of the state.
    pub state: Option<String>,
    /// The event that is delivered. A wake-up delivers nothing: it has an empty payload and names the event that waits.
    pub event: Event,
    /// The time.
    pub due_at: Timestamp,
    /// The priority of a delayed send.
    pub priority: Priority,
}

impl Timer {
    /// True for a wake-up, which delivers nothing. It calls a process whose code knows the waiting event and the state.
    pub fn is_wake(&self) -> bool {
        self.event.payload.is_empty()
    }
}

/// A change to an instance's timers.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerChange {
    /// A new timer.
    Set(Timer),
    /// The timer fired. This is a guard: nothing is written if the timer no longer exists.
    Fired(TimerId),
    /// The timer is due while a transition is in progress: it is held until the transition ends.
    Hold(TimerId),
    /// Held timers may fire again.
    Release,
    /// The timers of the state are deleted, because the instance left the state.
    Clear,
}

/// The kind of a history entry that is not an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteKind {
    /// An operator retried the call.
    Retried,
    /// An operator cancelled the instance.
    Cancelled,
    /// An operator paused the instance.
    Paused,
    /// An operator resumed the instance.
    Resumed,
    /// An operator skipped the open call.
    Skipped,
    /// An operator changed the retry policy of its open call.
    Rescheduled,
    /// An interrupting event ended the call.
    Interrupted,
    /// An event was not taken: it did not fit the state when it came first in the inbox, or a verb sent it and it was refused. Counted by
    /// `doctor` and listed by `fsm errors --rejected`.
    Rejected,
    /// An event that a verb of this instance sent was refused by its receiver.
    Refused,
    /// A verb of this instance cancelled a delayed send.
    Unsent,
    /// A worker reported an attempt that was already closed.
    Late,
    /// A name that the code no longer has was replaced.
    Migrated,
    /// The instance left the state before all children that it had started there had ended.
    Left,
    /// A child ended when its parent no longer waited for it.
    Unawaited,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Bytes(bytes) => f.debug_tuple("Bytes").field(&HiddenBytes(bytes)).finish(),
            Payload::Inbox(position) => f.debug_tuple("Inbox").field(position).finish(),
            Payload::Again(call) => f.debug_tuple("Again").field(call).finish(),
            Payload::Caught { call, error, attempts } => {
                f.debug_struct("Caught").field("call", call).field("error", error).field("attempts", attempts).finish()
            }
        }
    }
}

impl NoteKind {
    const ALL: [(NoteKind, &'static str); 14] = [
        (NoteKind::Retried, "retried"),
        (NoteKind::Cancelled, "cancelled"),
        (NoteKind::Paused, "paused"),
        (NoteKind::Resumed, "resumed"),
        (NoteKind::Skipped, "skipped"),
        (NoteKind::Rescheduled, "rescheduled"),
        (NoteKind::Interrupted, "interrupted"),
        (NoteKind::Rejected, "rejected"),
        (NoteKind::Refused, "refused"),
        (NoteKind::Unsent, "unsent"),
        (NoteKind::Late, "late"),
        (NoteKind::Migrated, "migrated"),
        (NoteKind::Left, "left"),
        (NoteKind::Unawaited, "unawaited"),
    ];

    /// The name in the database and on screens.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for NoteKind {
    type Err = crate::call::UnknownName;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind).ok_or_else(|| crate::call::UnknownName(word.into()))
    }
}

/// A row of `fsm_history`: an entry that is not an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// The instance.
    pub instance: InstanceId,
    /// The time.
    pub at: Timestamp,
    /// The kind of the entry.
    pub kind: NoteKind,
    /// The call that the entry is about.
    pub call: Option<CallId>,
    /// A sentence for people: the operator's reason, or the reason for a rejection.
    pub detail: Option<String>,
    /// The operator.
    pub actor: Option<String>,
}

/// A row of `fsm_requests`: the deduplication entry of a send or of an operator's act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller's deduplication id, unique within the instance.
    pub dedup: String,
    /// The event type; `None` for an operator's act.
    pub event: Option<String>,
    /// A digest of the payload, or of the act.
    pub digest: Vec<u8>,
    /// The call id of the first answer.
    pub call: CallId,
    /// The time of the first answer.
    pub at: Timestamp,
}

impl Changes {
    /// No changes to this instance yet. `instance` must be equal to the current row.
    pub fn of(instance: Instance) -> Changes {
        Changes {
            was: (instance.status, instance.paused, instance.family),
            instance,
            is_new: false,
            close: None,
            open: None,
            hold: None,
            retry_state: None,
            waits: None,
            inbox_taken: None,
            is_forecast_stale: false,
            timers: Vec::new(),
            notes: Vec::new(),
            request: None,
            search: Vec::new(),
            traces: Vec::new(),
            link: None,
        }
    }

    /// True if the changes move the instance in the partial indexes by status, pause flag or family.
    pub fn leaves_its_place(&self) -> bool {
        self.is_new || self.was != (self.instance.status, self.instance.paused, self.instance.family)
    }

    /// True if the changes only add an event to the inbox or a delayed event. Of the instance's row, only the end of its inbox and the time
    /// of the last change are different then.
    pub fn only_adds(&self) -> bool {
        let is_added = |change: &TimerChange| matches!(change, TimerChange::Set(timer) if timer.state.is_none() || timer.is_wake());
        let is_last = |waits: &Waits| waits.position + 1 == self.instance.inbox_tail;
        let adds = self.waits.as_ref().map_or(!self.timers.is_empty(), is_last);
        let ends_or_begins = self.close.is_some() || self.open.is_some() || self.leaves_its_place();
        let touches_others = self.hold.is_some() || self.retry_state.is_some() || self.inbox_taken.is_some() || self.is_forecast_stale;
        adds && self.timers.iter().all(is_added) && self.notes.is_empty() && !ends_or_begins && !touches_others
    }

    /// True if the instance is a child that ends with these changes, or that comes into error. Its parent may get an event.
    pub fn concerns_parent(&self) -> bool {
        self.instance.parent.is_some() && self.was.0 != self.instance.status && self.instance.status != Status::Running
    }

    /// The timer whose existence guards these changes.
    pub fn fired(&self) -> Option<TimerId> {
        self.timers.iter().find_map(|change| match change {
            TimerChange::Fired(timer) => Some(*timer),
            _ => None,
        })
    }
}

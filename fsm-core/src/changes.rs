//! All that one decision writes about one instance, as a value. The store writes the whole of it or none.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{Attempt, AttemptState};
use crate::ids::{CallId, InstanceId, SessionId, TimerId};
use crate::instance::{Instance, Status};
use crate::outcome::{Event, Veiled};
use crate::retry::Budget;
use crate::time::Timestamp;

/// What is written, in one transaction, about one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// The instance's row as it will be.
    pub instance: Instance,
    /// The status in the row as it is, and whether that says that the instance is paused.
    pub was: (Status, bool),
    /// The row does not exist yet.
    pub is_new: bool,
    /// The attempt that ends. Writing it is guarded: if it is no longer as expected, nothing at all is written.
    pub close: Option<Close>,
    /// The attempt that begins.
    pub open: Option<Open>,
    /// The live attempt's `held` becomes the instance's `paused`.
    pub hold: Option<(CallId, u32)>,
    /// The scheduled attempt gets another retry state. Guarded: if it is no longer scheduled, nothing at all is written.
    pub budget: Option<Box<(CallId, u32, Budget)>>,
    /// An event that begins to wait.
    pub waits: Option<Waits>,
    /// Events that waited at these positions are gone: taken or rejected.
    pub inbox_taken: Option<Range<i64>>,
    /// What was foreseen of those that still wait does not hold any more.
    pub is_outlook_lost: bool,
    /// What happens to timers.
    pub timers: Vec<TimerChange>,
    /// What the history keeps besides attempts.
    pub notes: Vec<Note>,
    /// The request to be known again.
    pub request: Option<Request>,
}

/// The end of an attempt, and what it must be for the end to count.
#[derive(Debug, Clone, PartialEq)]
pub struct Close {
    /// The attempt.
    pub call: CallId,
    /// Its number.
    pub number: u32,
    /// It must still be in this state,
    pub expected: AttemptState,
    /// and be held by this session.
    pub held_by: Option<SessionId>,
    /// What it becomes.
    pub becomes: AttemptState,
    /// When.
    pub finished_at: Timestamp,
    /// Why, when it failed.
    pub error: Option<String>,
}

/// A new attempt and its payload. Only the first attempt of a call carries one.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// The row.
    pub attempt: Arc<Attempt>,
    /// The payload of a first attempt.
    pub payload: Option<Payload>,
}

/// Where the payload of a new call comes from.
#[derive(Clone, PartialEq)]
pub enum Payload {
    /// It came with the request.
    Bytes(Vec<u8>),
    /// It waits in the inbox at this position.
    Inbox(i64),
    /// It wraps the payload of an exhausted call, for a catch verb.
    Caught {
        /// The exhausted call.
        call: CallId,
        /// Its last error.
        error: String,
        /// How many attempts it had.
        attempts: u32,
    },
}

/// An event that joins the inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// Its place.
    pub position: i64,
    /// Its call, once it is taken.
    pub call: CallId,
    /// What waits.
    pub event: Event,
    /// Where it leads; `None` where the code that took it cannot tell.
    pub outlook: Option<Outlook>,
}

/// The states that an instance can be in once its open call and all that waits have had their turn, kept with the last event that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// Whose graph foresaw them, as `Machine::graph` names it.
    pub graph: u64,
    /// `None` in it is the beginning.
    pub states: Vec<Option<String>>,
}

/// A row of the inbox without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its place.
    pub position: i64,
    /// Its call, once it is taken.
    pub call: CallId,
    /// The event type.
    pub event: String,
}

/// A row of `fsm_timers`: a moment at which an event is delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Timer {
    /// Its identity.
    pub id: TimerId,
    /// Whose it is.
    pub instance: InstanceId,
    /// The state it belongs to; `None` is a delayed send, which outlives states.
    pub state: Option<String>,
    /// What is delivered. A wake delivers nothing, which no payload is: it names the event that waits.
    pub event: Event,
    /// When.
    pub due_at: Timestamp,
}

impl Timer {
    /// Whether it delivers nothing: what waits could not be judged, and a process is called that has the event, and the state.
    pub fn is_wake(&self) -> bool {
        self.event.payload.is_empty()
    }
}

/// What happens to an instance's timers.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerChange {
    /// A new one.
    Set(Timer),
    /// It fired. Guarded: if it is gone, nothing at all is written.
    Fired(TimerId),
    /// It is due, but a transition is under way: it waits for the end of that.
    Hold(TimerId),
    /// Held ones may fire again.
    Release,
    /// Those of the state are gone, for the state was left.
    Clear,
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteKind {
    /// An operator asked for a fresh run.
    Retried,
    /// An operator ended the instance.
    Cancelled,
    /// An operator stopped the instance.
    Paused,
    /// An operator let it go on.
    Resumed,
    /// An operator gave up its open call.
    Skipped,
    /// An operator changed the retry policy of its open call.
    Rescheduled,
    /// An event's turn came and it did not fit.
    Rejected,
    /// A closed attempt was reported again.
    Late,
    /// A name that the code no longer has was replaced.
    Migrated,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::Bytes(bytes) => f.debug_tuple("Bytes").field(&Veiled(bytes)).finish(),
            Payload::Inbox(position) => f.debug_tuple("Inbox").field(position).finish(),
            Payload::Caught { call, error, attempts } => {
                f.debug_struct("Caught").field("call", call).field("error", error).field("attempts", attempts).finish()
            }
        }
    }
}

impl NoteKind {
    const ALL: [(NoteKind, &'static str); 9] = [
        (NoteKind::Retried, "retried"),
        (NoteKind::Cancelled, "cancelled"),
        (NoteKind::Paused, "paused"),
        (NoteKind::Resumed, "resumed"),
        (NoteKind::Skipped, "skipped"),
        (NoteKind::Rescheduled, "rescheduled"),
        (NoteKind::Rejected, "rejected"),
        (NoteKind::Late, "late"),
        (NoteKind::Migrated, "migrated"),
    ];

    /// The word in the database and on screens.
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
    type Err = crate::call::UnknownWord;
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind).ok_or_else(|| crate::call::UnknownWord(word.into()))
    }
}

/// A row of `fsm_history`: what is not an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// Whose history.
    pub instance: InstanceId,
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: NoteKind,
    /// The call it is about.
    pub call: Option<CallId>,
    /// A sentence for people: the operator's reason, or why an event was rejected.
    pub detail: Option<String>,
    /// Who acted.
    pub actor: Option<String>,
}

/// A row of `fsm_requests`: a send that is known again by the caller's own id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller's id for it, unique within the instance.
    pub dedup: String,
    /// The event type; `None` for an operator's act.
    pub event: Option<String>,
    /// A digest of the payload, or of the act.
    pub digest: Vec<u8>,
    /// The first answer.
    pub call: CallId,
    /// When that was.
    pub at: Timestamp,
}

impl Changes {
    /// Nothing yet, about this instance; its status is the one that its row has.
    pub fn of(instance: Instance) -> Changes {
        Changes {
            was: (instance.status, instance.paused),
            instance,
            is_new: false,
            close: None,
            open: None,
            hold: None,
            budget: None,
            waits: None,
            inbox_taken: None,
            is_outlook_lost: false,
            timers: Vec::new(),
            notes: Vec::new(),
            request: None,
        }
    }

    /// Whether whoever lists instances by what has become of them finds this one elsewhere now.
    pub fn leaves_its_place(&self) -> bool {
        self.is_new || self.was != (self.instance.status, self.instance.paused)
    }

    /// The timer whose firing guards these changes.
    pub fn fired(&self) -> Option<TimerId> {
        self.timers.iter().find_map(|change| match change {
            TimerChange::Fired(timer) => Some(*timer),
            _ => None,
        })
    }
}

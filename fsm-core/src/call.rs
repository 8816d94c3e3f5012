//! An async call and its attempts: one durable request to run a verb, and each run of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, InstanceId, SessionId};
use crate::priority::Priority;
use crate::retry::RetryState;
use crate::time::Timestamp;

/// The state of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    /// The attempt may start at `scheduled_at`.
    Scheduled,
    /// A worker session has claimed the attempt and runs it.
    Executing,
    /// The verb returned `Ok`, and the transition is committed.
    Success,
    /// The verb returned an error, panicked, ran out of time, or its input could not be read.
    Error,
    /// The worker's process died, or its lease expired before it reported. Counts against the retries.
    Lost,
    /// A worker released the attempt during its graceful shutdown. Does not count.
    Released,
    /// An operator or an interrupting event ended the attempt.
    Cancelled,
    /// The verb returned `Failure::snooze(wait)`: nothing failed, and the call runs again later. Does not count against the retries.
    Snoozed,
}

impl AttemptState {
    const ALL: [(AttemptState, &'static str); 8] = [
        (AttemptState::Scheduled, "scheduled"),
        (AttemptState::Executing, "executing"),
        (AttemptState::Success, "success"),
        (AttemptState::Error, "error"),
        (AttemptState::Lost, "lost"),
        (AttemptState::Released, "released"),
        (AttemptState::Cancelled, "cancelled"),
        (AttemptState::Snoozed, "snoozed"),
    ];

    /// The name of the state in the database and on screens.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// True while the attempt is scheduled or executing, so its call is open.
    pub fn is_live(self) -> bool {
        matches!(self, AttemptState::Scheduled | AttemptState::Executing)
    }
}

/// One attempt of a call, without its payload: a row of `fsm_async_calls`.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The call that the attempt belongs to.
    pub call: CallId,
    /// The number of the attempt, from 1 without gaps.
    pub number: u32,
    /// The instance that the call belongs to.
    pub instance: InstanceId,
    /// The instance's machine.
    pub machine: String,
    /// The verb that runs.
    pub verb: String,
    /// The event type that the verb takes.
    pub event: String,
    /// The state of the instance during the attempt; `None` before its first transition.
    pub from: Option<String>,
    /// The state that the instance is in after success: for an internal transition, the one it is in already. For a catch verb: the state
    /// that the exhausted call leads to.
    pub to: String,
    /// The state of the attempt.
    pub state: AttemptState,
    /// True while the instance is paused: the attempt is not due.
    pub held: bool,
    /// The time at which the row was written.
    pub created_at: Timestamp,
    /// The earliest start.
    pub scheduled_at: Timestamp,
    /// The retry state.
    pub retry_state: RetryState,
    /// The worker session that runs or ran the attempt.
    pub worker: Option<SessionId>,
    /// The time at which a worker claimed the attempt.
    pub started_at: Option<Timestamp>,
    /// The time at which its end was committed.
    pub finished_at: Option<Timestamp>,
    /// The error text of a failed attempt, at most 8 KiB.
    pub error: Option<String>,
    /// The previous call of the instance: the history is read backwards along these links. All attempts of a call have the same one, except
    /// attempts that a manual retry started after a catch verb had run.
    pub previous: Option<CallId>,
    /// The priority of the call.
    pub priority: Priority,
    /// The name of the limit that a live attempt waits for or runs under. An attempt that has ended has none.
    pub limit: Option<String>,
}

impl Attempt {
    /// True if the attempt was scheduled first and claimed later. An attempt that was handed to a local worker starts when it is written.
    pub fn was_due(&self) -> bool {
        self.started_at.is_some_and(|started_at| started_at > self.created_at)
    }

    /// True for a call of a catch verb. Such a call does not change the state, and its success is not a transition.
    pub fn is_catch(&self) -> bool {
        self.verb != self.to && is_caught(&self.event)
    }

    /// True for a call of an internal transition. Its success is a transition, and the instance stays in its state.
    pub fn is_stay(&self) -> bool {
        self.verb != self.to && !is_caught(&self.event)
    }
}

/// True for the event type of catch verbs, `Caught<E>`. No verb of an internal transition takes one, so that the name distinguishes the two.
pub fn is_caught(event: &str) -> bool {
    event.starts_with("Caught<")
}

/// A word that names no state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName(pub String);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not known here", self.0.escape_debug())
    }
}

impl std::error::Error for UnknownName {}

impl fmt::Display for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AttemptState {
    type Err = UnknownName;
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(state, _)| *state).ok_or_else(|| UnknownName(word.into()))
    }
}

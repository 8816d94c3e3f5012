//! An async call and its attempts: one durable request to run a verb, and each run of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, InstanceId, SessionId};
use crate::retry::Budget;
use crate::time::Timestamp;

/// How far an attempt has come, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptState {
    /// It may start once its time has come.
    Scheduled,
    /// A session runs it.
    Executing,
    /// The verb returned `Ok`, and the transition is committed.
    Success,
    /// The verb returned an error, panicked, ran out of time, or its input could not be read.
    Error,
    /// Its session died. Counts against the budget.
    Lost,
    /// A draining session gave it back. Does not count.
    Released,
    /// An operator ended it.
    Cancelled,
}

impl AttemptState {
    const ALL: [(AttemptState, &'static str); 7] = [
        (AttemptState::Scheduled, "scheduled"),
        (AttemptState::Executing, "executing"),
        (AttemptState::Success, "success"),
        (AttemptState::Error, "error"),
        (AttemptState::Lost, "lost"),
        (AttemptState::Released, "released"),
        (AttemptState::Cancelled, "cancelled"),
    ];

    /// The word in the database and on screens.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// Scheduled or executing: the call is open.
    pub fn is_live(self) -> bool {
        matches!(self, AttemptState::Scheduled | AttemptState::Executing)
    }
}

/// One attempt of a call, without its payload: a row of `fsm_async_calls`.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// The call.
    pub call: CallId,
    /// From 1, dense.
    pub number: u32,
    /// Whose call it is.
    pub instance: InstanceId,
    /// The instance's machine.
    pub machine: String,
    /// What runs.
    pub verb: String,
    /// What it is given.
    pub event: String,
    /// The state the instance rests in meanwhile; `None` before its first transition.
    pub from: Option<String>,
    /// The state it enters on success. For a catch verb, the state that the exhausted call would have entered.
    pub to: String,
    /// How far it has come.
    pub state: AttemptState,
    /// Not due while the instance is paused.
    pub held: bool,
    /// When this row was written.
    pub created_at: Timestamp,
    /// When it may start.
    pub scheduled_at: Timestamp,
    /// The retry state.
    pub budget: Budget,
    /// The session that runs or ran it.
    pub worker: Option<SessionId>,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When its end was committed.
    pub finished_at: Option<Timestamp>,
    /// Why it failed, at most 8 KiB.
    pub error: Option<String>,
    /// The instance's call before this attempt: its history is walked backwards through these. It is the same for all
    /// attempts of a call, but for those that a retry by hand began after the call had been caught.
    pub previous: Option<CallId>,
}

impl Attempt {
    /// Whether it waited for its time before it began. One that was handed off began in the moment in which it was written.
    pub fn was_due(&self) -> bool {
        self.started_at.is_some_and(|started_at| started_at > self.created_at)
    }

    /// Whether this runs a catch verb: such a call moves nothing, and its success is no transition.
    pub fn is_catch(&self) -> bool {
        self.verb != self.to
    }
}

/// A word that is none of the expected ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord(pub String);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not known here", self.0.escape_debug())
    }
}

impl std::error::Error for UnknownWord {}

impl fmt::Display for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AttemptState {
    type Err = UnknownWord;
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(state, _)| *state).ok_or_else(|| UnknownWord(word.into()))
    }
}

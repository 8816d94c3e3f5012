//! The present activity of an instance: its open call, and a description for people.

use std::fmt;
use std::time::Duration;

use fsm_core::call::{Attempt as Row, AttemptState};
use fsm_core::ids::{CallId, SessionId};
use fsm_core::instance::Status;
use fsm_core::priority::Priority;
use fsm_core::time::{Timestamp, serialize_optional_micros, serialize_text};
use serde::Serialize;

use crate::progress::Progress;

/// A call that is scheduled or executing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenCall {
    /// The call's id, the same for all its attempts.
    pub id: CallId,
    /// The verb.
    pub verb: String,
    /// The event type.
    pub event: String,
    /// Scheduled or executing.
    pub state: AttemptState,
    /// The number of the attempt that is scheduled or executing, from 1.
    pub attempt: u32,
    /// The maximum number of attempts; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// The number of retries that remain after this attempt; `None` is unlimited.
    pub retries_left: Option<u32>,
    /// The number of attempts of the call that snoozed. They are among the attempts, and used no retry.
    pub snoozes: u32,
    /// The time at which the attempt may start, or could have started.
    #[serde(serialize_with = "serialize_text")]
    pub next_at: Timestamp,
    /// The error of the previous attempt.
    pub last_error: Option<String>,
    /// The duration of the previous attempt.
    #[serde(rename = "last_took_us", serialize_with = "serialize_optional_micros")]
    pub last_took: Option<Duration>,
    /// The session that executes it.
    pub worker: Option<SessionId>,
    /// The priority of the call.
    pub priority: Priority,
    /// The name of the limit that the attempt waits for if it is scheduled, and runs under if it executes. An attempt that is due and
    /// scheduled waits for its limit.
    pub limit: Option<String>,
    /// The last progress that the executing attempt showed. It is written within about a second. `settled`, `wait` and `watch` omit it.
    pub progress: Option<Progress>,
}

/// The present activity of an instance. `Display` is a sentence for people.
#[derive(Debug, Clone, PartialEq)]
pub enum Activity {
    /// The instance waits for an event.
    Rests,
    /// An attempt executes.
    Runs {
        /// The verb.
        verb: String,
        /// The attempt, as "4 of 11".
        attempt: String,
    },
    /// An attempt is scheduled.
    Waits {
        /// The verb.
        verb: String,
        /// The attempt, as "4 of 11".
        attempt: String,
        /// When it may start.
        until: Timestamp,
        /// The limit that it then waits for.
        limit: Option<String>,
    },
    /// The instance is in error until an operator acts.
    Stuck {
        /// The error.
        why: String,
    },
    /// The instance has ended.
    Ended(Status),
}

impl Activity {
    pub(crate) fn of(status: Status, call: Option<&OpenCall>, paused: bool, error: Option<&str>) -> Activity {
        match (call, status) {
            (_, Status::Completed | Status::Cancelled) => Activity::Ended(status),
            (_, Status::Error) => Activity::Stuck { why: error.unwrap_or_default().to_owned() },
            (Some(call), _) if call.state == AttemptState::Executing => {
                Activity::Runs { verb: call.verb.clone(), attempt: call.attempt_of() }
            }
            (_, _) if paused => Activity::Stuck { why: "an operator paused it".to_owned() },
            (Some(call), _) => {
                let limit = call.limit.clone();
                Activity::Waits { verb: call.verb.clone(), attempt: call.attempt_of(), until: call.next_at, limit }
            }
            (None, _) => Activity::Rests,
        }
    }
}

impl OpenCall {
    /// The number of the attempt and the maximum, as "4 of 11", or "4" if there is no limit.
    pub fn attempt_of(&self) -> String {
        match self.max_attempts {
            Some(most) => format!("{} of {most}", self.attempt),
            None => self.attempt.to_string(),
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Rests => f.write_str("rests and waits for an event"),
            Activity::Runs { verb, attempt } => write!(f, "runs attempt {attempt} of `{verb}`"),
            Activity::Waits { verb, attempt, until, limit: None } => write!(f, "waits until {until} for attempt {attempt} of `{verb}`"),
            Activity::Waits { verb, attempt, until, limit: Some(limit) } => {
                write!(f, "waits for the limit \"{limit}\", for attempt {attempt} of `{verb}`, due at {until}")
            }
            Activity::Stuck { why } => write!(f, "is stuck until an operator acts: {why}"),
            Activity::Ended(status) => write!(f, "is {status}"),
        }
    }
}

impl OpenCall {
    pub(super) fn of(live: &Row, before: Option<&Row>) -> OpenCall {
        OpenCall {
            id: live.call,
            verb: live.verb.clone(),
            event: live.event.clone(),
            state: live.state,
            attempt: live.number,
            max_attempts: live.retry_state.max_attempts(live.number),
            retries_left: live.retry_state.remaining,
            snoozes: live.retry_state.snoozes,
            next_at: live.scheduled_at,
            last_error: before.and_then(|before| before.error.clone()),
            last_took: before.and_then(took),
            worker: live.worker,
            priority: live.priority,
            limit: live.limit.clone(),
            progress: None,
        }
    }
}

/// The duration of an attempt, from its claim to the commit of its outcome.
pub(crate) fn took(row: &Row) -> Option<Duration> {
    Some(row.finished_at? - row.started_at?)
}

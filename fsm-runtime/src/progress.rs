//! The progress of a running attempt: a heartbeat and a small value for the screens.

mod writing;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_core::time::{Timestamp, serialize_text};
use serde::Serialize;
use tokio::time::Instant;

use crate::guard;

/// The maximum size of a value, in bytes of JSON.
pub(crate) const LARGEST: usize = 4096;

/// The last progress that a verb showed with `ctx.progress(…)`, and its time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// The value as JSON, as a verb gave it.
    pub value: serde_json::Value,
    /// The time at which the verb gave it.
    #[serde(serialize_with = "serialize_text")]
    pub at: Timestamp,
}

/// The progress of one attempt in this process.
pub(crate) struct ProgressOfAttempt(Mutex<Latest>);

struct Latest {
    /// The beginning of the attempt, or its last progress.
    since: Instant,
    /// The last value as JSON and its time.
    value: Option<(Vec<u8>, Timestamp)>,
    is_written: bool,
}

impl ProgressOfAttempt {
    /// The attempt begins now.
    pub(crate) fn begun() -> Arc<ProgressOfAttempt> {
        Arc::new(ProgressOfAttempt(Mutex::new(Latest { since: Instant::now(), value: None, is_written: true })))
    }

    pub(crate) fn show(&self, value: Vec<u8>, at: Timestamp) {
        *guard::lock(&self.0) = Latest { since: Instant::now(), value: Some((value, at)), is_written: false };
    }

    /// The time since the beginning of the attempt or its last progress.
    pub(crate) fn silence(&self) -> Duration {
        guard::lock(&self.0).since.elapsed()
    }

    /// The value that is not written yet.
    fn unwritten(&self) -> Option<(Vec<u8>, Timestamp)> {
        let latest = guard::lock(&self.0);
        latest.value.clone().filter(|_| !latest.is_written)
    }

    /// Records that the value of this time is written.
    fn written(&self, at: Timestamp) {
        let mut latest = guard::lock(&self.0);
        latest.is_written |= latest.value.as_ref().is_some_and(|(_, last)| *last == at);
    }
}

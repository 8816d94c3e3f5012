//! The progress of running attempts: a heartbeat and a small value for the screens, written at most once a second for each attempt.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_core::time::{Timestamp, serialize_text};
use serde::Serialize;
use tokio::time::Instant;

use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::Error;
use crate::guard;
use crate::running::Phase;
use crate::store::progress::Written;

/// The minimum time between two writes for the same attempt.
const BREATH: Duration = Duration::from_secs(1);
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

impl Engine {
    /// Writes the progress of running attempts, those of one second in one statement. A value that is not written is lost with the process,
    /// and nothing else.
    pub(crate) async fn progress_loop(self: Arc<Self>) {
        let Some(work) = &self.work else { return };
        loop {
            // This wait has no limit: there may be no verb that shows progress.
            work.progress.notified().await;
            match self.write_progress().await {
                Ok(true) => {}
                // A row that is locked, or a database that is away, is tried again.
                Ok(false) => work.progress.notify_one(),
                Err(error) => {
                    tracing::debug!(%error, "the progress of verbs was not written, and is tried again");
                    work.progress.notify_one();
                }
            }
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Returns true if all is written.
    async fn write_progress(&self) -> Result<bool, Error> {
        let Some(work) = &self.work else { return Ok(true) };
        let running: Vec<_> = work
            .running()
            .values()
            .filter(|running| running.phase == Phase::Executing)
            .map(|running| (running.target.clone(), Arc::clone(&running.attempt), Arc::clone(&running.progress)))
            .collect();
        let mut writes = Vec::new();
        for (target, attempt, progress) in &running {
            let Some((value, at)) = progress.unwritten() else { continue };
            let owner = Owner { machine: &target.machine, key: &target.key };
            match self.data_protection.encrypt(&owner.progress(attempt.call), value) {
                Ok(value) => {
                    writes.push((Written { instance: attempt.instance, call: attempt.call, number: attempt.number, value, at }, progress))
                }
                Err(error) => {
                    tracing::warn!(verb = attempt.verb, error, "the progress of a verb cannot be encrypted, and is not written");
                    progress.written(at);
                }
            }
        }
        if writes.is_empty() {
            return Ok(true);
        }
        let rows: Vec<_> = writes.iter().map(|(write, _)| write).collect();
        let missed = self.store.write_progress(&rows).await?;
        for (place, (write, progress)) in writes.iter().enumerate() {
            if !missed.contains(&place) {
                progress.written(write.at);
            }
        }
        Ok(missed.is_empty())
    }
}

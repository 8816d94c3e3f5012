//! Writes the progress of running attempts, at most once a second for each attempt.

use std::sync::Arc;
use std::time::Duration;

use fsm_store::progress::Written;

use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::Error;
use crate::running::Phase;

/// The minimum time between two writes for the same attempt.
const BREATH: Duration = Duration::from_secs(1);

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

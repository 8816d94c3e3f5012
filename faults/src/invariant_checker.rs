//! Checks the invariants repeatedly while a scenario runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fsm::{Client, Error, Invariant};
use tokio::task::JoinHandle;

use crate::Failure;

/// More than the number of connections in a client's pools, of which there is one for each partition.
const CONNECTIONS: u32 = 64;

/// A task that checks the invariants repeatedly.
pub struct InvariantChecker {
    client: Client,
    found_so_far: Arc<Mutex<(usize, Vec<String>)>>,
    task: JoinHandle<()>,
}

impl InvariantChecker {
    /// Starts the task.
    pub fn begin(client: Client) -> InvariantChecker {
        let found_so_far = Arc::<Mutex<(usize, Vec<String>)>>::default();
        let (task_client, results) = (client.clone(), Arc::clone(&found_so_far));
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                // While the database is unavailable, nothing can be checked.
                if let Ok(found) = task_client.check_invariants().await {
                    let mut found_so_far = results.lock().unwrap_or_else(PoisonError::into_inner);
                    found_so_far.0 += 1;
                    found_so_far
                        .1
                        .extend(found.iter().map(|one| format!("{} is broken during the run: {}: {:?}", one.number, one.says, one.rows)));
                }
                // The pause keeps the checks from being a load of their own.
                tokio::time::sleep((begun.elapsed() * 5).max(Duration::from_millis(500))).await;
            }
        });
        InvariantChecker { client, found_so_far, task }
    }

    /// Ends the task. The invariants are checked once more at the end.
    pub fn stop(&self) {
        self.task.abort();
    }

    /// Ends the task and checks once more. Returns the number of checks and their findings.
    pub async fn end(&mut self) -> Result<(usize, Vec<String>), Failure> {
        self.task.abort();
        let last = self.check_with_retries().await?;
        let mut found_so_far = self.found_so_far.lock().unwrap_or_else(PoisonError::into_inner);
        let (checks, mut broken) = std::mem::take(&mut *found_so_far);
        broken.truncate(20);
        broken.extend(last.iter().map(|one| format!("{} is broken at the end: {}: {:?}", one.number, one.says, one.rows)));
        Ok((checks + 1, broken))
    }

    /// Connections that were cut by the server are noticed one by one, so the check is retried.
    async fn check_with_retries(&self) -> Result<Vec<Invariant>, Error> {
        for _ in 0..CONNECTIONS {
            if let Ok(found) = self.client.check_invariants().await {
                return Ok(found);
            }
        }
        self.client.check_invariants().await
    }
}

//! Checks the invariants repeatedly while a scenario runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fsm::{Client, Error, Invariant};
use tokio::task::JoinHandle;

use crate::Failure;

/// More than the number of connections in a client's pool.
const CONNECTIONS: u32 = 16;

/// A task that checks the invariants repeatedly.
pub struct Patrol {
    client: Client,
    seen: Arc<Mutex<(usize, Vec<String>)>>,
    task: JoinHandle<()>,
}

impl Patrol {
    /// Starts the task.
    pub fn begin(client: Client) -> Patrol {
        let seen = Arc::<Mutex<(usize, Vec<String>)>>::default();
        let (theirs, looking) = (client.clone(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                // While the database is unavailable, nothing can be checked.
                if let Ok(found) = theirs.check_invariants().await {
                    let mut seen = looking.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.0 += 1;
                    seen.1.extend(found.iter().map(|one| format!("{} is broken during the run: {}: {:?}", one.number, one.says, one.rows)));
                }
                // The pause keeps the checks from being a load of their own.
                tokio::time::sleep((begun.elapsed() * 5).max(Duration::from_millis(500))).await;
            }
        });
        Patrol { client, seen, task }
    }

    /// Ends the task. The invariants are checked once more at the end.
    pub fn stop(&self) {
        self.task.abort();
    }

    /// Ends the task and checks once more. Returns the number of checks and their findings.
    pub async fn end(&mut self) -> Result<(usize, Vec<String>), Failure> {
        self.task.abort();
        let last = self.look().await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (looks, mut broken) = std::mem::take(&mut *seen);
        broken.truncate(20);
        broken.extend(last.iter().map(|one| format!("{} is broken at the end: {}: {:?}", one.number, one.says, one.rows)));
        Ok((looks + 1, broken))
    }

    /// Connections that were cut by the server are noticed one by one, so the check is retried.
    async fn look(&self) -> Result<Vec<Invariant>, Error> {
        for _ in 0..CONNECTIONS {
            if let Ok(found) = self.client.check_invariants().await {
                return Ok(found);
            }
        }
        self.client.check_invariants().await
    }
}

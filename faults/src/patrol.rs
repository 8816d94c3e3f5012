//! Somebody who looks at the invariants while all others break what they can.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fsm::{Client, Error, Invariant};
use tokio::task::JoinHandle;

use crate::Failure;

/// More than the pool of a client has.
const CONNECTIONS: u32 = 16;

/// Looks at the invariants again and again while the others break what they can.
pub struct Patrol {
    client: Client,
    seen: Arc<Mutex<(usize, Vec<String>)>>,
    task: JoinHandle<()>,
}

impl Patrol {
    /// From now on.
    pub fn begin(client: Client) -> Patrol {
        let seen = Arc::<Mutex<(usize, Vec<String>)>>::default();
        let (theirs, looking) = (client.clone(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                // While the database is away there is nothing to look at.
                if let Ok(found) = theirs.check_invariants().await {
                    let mut seen = looking.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.0 += 1;
                    seen.1.extend(found.iter().map(|one| format!("{} is broken during the run: {}: {:?}", one.number, one.says, one.rows)));
                }
                // The look itself must not be the load.
                tokio::time::sleep((begun.elapsed() * 5).max(Duration::from_millis(500))).await;
            }
        });
        Patrol { client, seen, task }
    }

    /// How often it looked, and what it found; with one look more.
    pub async fn end(&mut self) -> Result<(usize, Vec<String>), Failure> {
        self.task.abort();
        let last = self.look().await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (looks, mut broken) = std::mem::take(&mut *seen);
        broken.truncate(20);
        broken.extend(last.iter().map(|one| format!("{} is broken at the end: {}: {:?}", one.number, one.says, one.rows)));
        Ok((looks + 1, broken))
    }

    /// Connections that a server cut when it went are found out one by one.
    async fn look(&self) -> Result<Vec<Invariant>, Error> {
        for _ in 0..CONNECTIONS {
            if let Ok(found) = self.client.check_invariants().await {
                return Ok(found);
            }
        }
        self.client.check_invariants().await
    }
}

//! The wait for the write lock of a SQLite file, which one connection holds at a time.

use std::time::{Duration, Instant};

/// The maximum wait for another process's transaction.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two attempts to get the lock.
const LOOK: Duration = Duration::from_millis(1);

/// A wait for the write lock. SQLite's own busy handler waits up to 100 ms between attempts, so that a process that commits continuously
/// always gets the lock first and starves the others.
pub(super) struct Turn(Instant);

impl Turn {
    /// Begins to wait.
    pub(super) fn wanted() -> Turn {
        Turn(Instant::now())
    }

    /// The wait before the next attempt. `None` if the lock is not busy or the maximum wait has passed.
    pub(super) fn next_look(&self, is_busy: bool) -> Option<Duration> {
        (is_busy && self.0.elapsed() < BUSY_TIMEOUT).then_some(LOOK)
    }
}

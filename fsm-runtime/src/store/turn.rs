//! The wait for the write lock of a SQLite file, which one connection holds at a time.

use std::time::{Duration, Instant};

/// How long another process's transaction is waited for.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it takes until the next look.
const LOOK: Duration = Duration::from_millis(1);

/// A wait for one's turn. SQLite's own looks grow to 100 ms apart, and a process that commits again and again is always there sooner:
/// others would get no turn for as long as it has work.
pub(super) struct Turn(Instant);

impl Turn {
    /// From now on.
    pub(super) fn wanted() -> Turn {
        Turn(Instant::now())
    }

    /// If no more is wrong than that another process writes: how long to wait before the next look, unless it was waited long enough.
    pub(super) fn next_look(&self, is_busy: bool) -> Option<Duration> {
        (is_busy && self.0.elapsed() < BUSY_TIMEOUT).then_some(LOOK)
    }
}

//! The limits that requests are checked against.

use std::time::Duration;

/// The limits that requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of one payload.
    pub(crate) payload: usize,
    /// Events that may wait for one instance.
    pub(crate) inbox: u64,
    /// How long a request of a caller may take.
    pub(crate) patience: Duration,
}

/// How long a caller waits for the database unless it says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// A shorter patience would end before a commit does.
pub(crate) const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: 256 * 1024, inbox: 1000, patience: PATIENCE }
    }
}

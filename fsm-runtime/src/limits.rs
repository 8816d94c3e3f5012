//! The limits of requests.

use std::time::Duration;

/// The limits that requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum size of one payload, in bytes.
    pub(crate) payload: usize,
    /// The maximum number of events in the inbox of one instance.
    pub(crate) inbox: u64,
    /// The longest time for which a request of a caller is retried.
    pub(crate) patience: Duration,
}

/// The default time for which a caller's request is retried while the database is unavailable.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The minimum of that time. A shorter one could end before a commit does.
pub(crate) const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: 256 * 1024, inbox: 1000, patience: PATIENCE }
    }
}

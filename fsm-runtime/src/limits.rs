//! The limits of requests.

/// The limits of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum size of one payload, in bytes.
    pub(crate) payload: usize,
    /// The maximum number of events in the inbox of one instance.
    pub(crate) inbox: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: 256 * 1024, inbox: 1000 }
    }
}

//! The limits that requests are checked against.

/// The limits that requests are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of one payload.
    pub(crate) payload: usize,
    /// Events that may wait for one instance.
    pub(crate) inbox: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: 256 * 1024, inbox: 1000 }
    }
}

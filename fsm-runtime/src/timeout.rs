//! The two event types that the engine itself delivers.

use serde::{Deserialize, Serialize};

use fsm_core::time::Timestamp;

/// The event of a durable timer: the instance rested in a state for as long as `after` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    /// The state it rested in.
    pub state: String,
    /// When the timer was due. It is delivered then or later.
    pub due_at: Timestamp,
}

/// The event of a catch verb: a call whose attempts are exhausted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Caught<E> {
    /// The event of the exhausted call.
    pub event: E,
    /// Its last error.
    pub error: String,
    /// How many attempts it had.
    pub attempts: u32,
}

//! The two event types that the engine itself delivers.

use serde::{Deserialize, Serialize};

use fsm_core::time::Timestamp;

/// The event of a timer: the instance stayed in a state for the time that `after` declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout {
    /// The name of the state.
    pub state: String,
    /// The time at which the timer was due. The event is delivered then or later.
    pub due_at: Timestamp,
}

/// The event of a catch verb: a call whose attempts are exhausted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Caught<E> {
    /// The event of the exhausted call.
    pub event: E,
    /// The last error text of the call.
    pub error: String,
    /// The number of attempts that the call had.
    pub attempts: u32,
}

//! What the shell brings to a decision: how an attempt ended, and what its verb asked for.

use crate::ids::CallId;
use crate::retry::RetryAdvice;
use crate::time::Timestamp;

/// A typed value on its way to an instance, encoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event type's name.
    pub name: String,
    /// JSON, as bytes.
    pub payload: Vec<u8>,
}

/// An event that a verb sends to another instance, committed with its own transition.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Its call, once it is taken.
    pub id: CallId,
    /// The receiver's machine.
    pub machine: String,
    /// The receiver's key.
    pub key: String,
    /// What is sent.
    pub event: Event,
    /// Not before this moment.
    pub deliver_at: Option<Timestamp>,
}

/// All that a verb asked of the engine; forgotten unless the attempt succeeds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Asks {
    /// The event that the instance takes right after, ahead of its inbox.
    pub next: Option<Event>,
    /// Events to other instances.
    pub sends: Vec<Outgoing>,
}

/// Why an attempt failed, and what the error says of its own retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Text for people, at most 8 KiB.
    pub error: String,
    /// What the error, or the delay function, says.
    pub advice: RetryAdvice,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The verb returned `Ok`.
    Success {
        /// The instance's data as the verb left it; `None` where it does not touch it.
        record: Option<Vec<u8>>,
        /// What else it asked for.
        asks: Asks,
    },
    /// It returned an error, panicked, ran out of time, or its input could not be read.
    Failure(Problem),
    /// Its session died.
    Lost,
    /// Its session drains and gave it back.
    Released,
}

impl Outcome {
    /// The word for log lines.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Success { .. } => "success",
            Outcome::Failure(_) => "error",
            Outcome::Lost => "lost",
            Outcome::Released => "released",
        }
    }
}

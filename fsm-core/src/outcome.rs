//! What the shell brings to a decision: how an attempt ended, and what its verb asked for.

use std::borrow::Cow;

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

impl Problem {
    /// A problem whose text is fit to be kept.
    pub fn new(error: &str, advice: RetryAdvice) -> Problem {
        Problem { error: fit(error).into_owned(), advice }
    }
}

/// The longest error text that is kept, in bytes.
const LONGEST_ERROR: usize = 8 * 1024;

/// The text without NUL, which PostgreSQL refuses, and at most 8 KiB of it.
pub fn fit(text: &str) -> Cow<'_, str> {
    let cut = &text[..text.floor_char_boundary(LONGEST_ERROR)];
    if !cut.contains('\0') {
        return cut.into();
    }
    let mut clean = cut.replace('\0', "\u{fffd}");
    clean.truncate(clean.floor_char_boundary(LONGEST_ERROR));
    clean.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_is_cut_and_holds_no_nul() {
        assert_eq!(fit("a\0b"), "a\u{fffd}b");
        for text in ["ä".repeat(LONGEST_ERROR), "\0".repeat(LONGEST_ERROR), format!("x{}", "ä".repeat(LONGEST_ERROR))] {
            let fit = fit(&text);
            assert!(fit.len() <= LONGEST_ERROR && fit.len() > LONGEST_ERROR - 4 && !fit.contains('\0'));
        }
    }
}

//! What the process keeps from eyes that should not see it.

use fsm_core::outcome::Problem;
use fsm_core::retry::RetryAdvice;

use crate::redact::{Redaction, Shown};

/// What is kept from eyes, and how. Nothing unless the builder was told.
#[derive(Clone, Default)]
pub(crate) struct Discretion {
    pub(crate) redaction: Redaction,
}

impl Discretion {
    /// A failure as it may be stored and logged.
    pub(crate) fn problem(&self, machine: &str, verb: &str, error: &str, advice: RetryAdvice) -> Problem {
        Problem::new(&self.redaction.of(Shown::error(machine, verb, error)), advice)
    }
}

//! The values that the engine measures.

use std::time::Duration;

use fsm_core::instance::Status;

/// The outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    Success,
    Error,
    Lost,
    Timeout,
    Panic,
    Released,
    Snoozed,
}

impl AttemptOutcome {
    #[cfg(feature = "metrics")]
    pub(super) const ALL: [AttemptOutcome; 7] = [
        AttemptOutcome::Success,
        AttemptOutcome::Error,
        AttemptOutcome::Lost,
        AttemptOutcome::Timeout,
        AttemptOutcome::Panic,
        AttemptOutcome::Released,
        AttemptOutcome::Snoozed,
    ];

    #[cfg(feature = "metrics")]
    pub(super) fn word(self) -> &'static str {
        match self {
            AttemptOutcome::Success => "success",
            AttemptOutcome::Error => "error",
            AttemptOutcome::Lost => "lost",
            AttemptOutcome::Timeout => "timeout",
            AttemptOutcome::Panic => "panic",
            AttemptOutcome::Released => "released",
            AttemptOutcome::Snoozed => "snoozed",
        }
    }
}

/// The backlog of one machine, as the observer read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Calls that are due and have not started, up to a limit.
    pub(crate) due_calls: u64,
    /// The time for which the oldest of them has waited.
    pub(crate) oldest_due: Duration,
}

/// The sizes of one machine, which are read more seldom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Instances by status, each up to a limit.
    pub(crate) instances: Vec<(Status, u64)>,
    /// Events that wait for their turn, up to a limit.
    pub(crate) inbox_events: u64,
    /// Events of the outbox, up to a limit.
    pub(crate) outbox_events: u64,
}

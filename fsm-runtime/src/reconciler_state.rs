//! The state of the reconciler: the mappings of names, and the time of its next run.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::decide::migrate::Renames;
use fsm_core::time::Timestamp;

/// The first and the longest interval between two runs. The interval doubles after each run.
const PAUSES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));

/// The mappings of old names to new ones, by machine.
pub(crate) type Mappings = HashMap<String, Renames>;

/// The mappings, and the time of the next run.
pub(crate) struct ReconcilerState {
    mappings: Mappings,
    next: Timestamp,
    pause: Duration,
    /// The beginning of the last complete run.
    looked_at: Timestamp,
}

/// The time by which a row may be older than its commit: a decision is made before it is written, and clocks differ.
const LATE: Duration = Duration::from_secs(600);

impl ReconcilerState {
    /// The state after a complete run at `now`.
    pub(crate) fn since(now: Timestamp, mappings: Mappings) -> ReconcilerState {
        ReconcilerState { mappings, next: now + PAUSES.0, pause: PAUSES.0, looked_at: now }
    }

    /// The mapping of a machine.
    pub(crate) fn renames(&self, machine: &str) -> Option<&Renames> {
        self.mappings.get(machine)
    }

    /// Returns true if the next run is due.
    pub(crate) fn is_time(&self, now: Timestamp) -> bool {
        now >= self.next
    }

    /// The time since which a row may have changed after the last complete run saw it.
    pub(crate) fn looked_at(&self) -> Timestamp {
        Timestamp::from_micros(self.looked_at.as_micros().saturating_sub(fsm_core::time::micros(LATE)))
    }

    /// Records a complete run that began at `now`.
    pub(crate) fn looked(&mut self, now: Timestamp) {
        self.looked_at = now;
        self.pause = (self.pause * 2).min(PAUSES.1);
        self.next = now + self.pause;
    }
}

//! When a process looks for what other code wrote, and what takes the place of which names then.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::decide::migrate::Renames;
use fsm_core::time::Timestamp;

/// Between the first two looks, and between two looks at most: each next one comes after twice the time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));

/// What takes the place of names that the code no longer has, by machine.
pub(crate) type Mappings = HashMap<String, Renames>;

/// What is mended, and when it is looked for next.
pub(crate) struct ReconcilerState {
    mappings: Mappings,
    next: Timestamp,
    pause: Duration,
}

impl ReconcilerState {
    /// All was looked through at `now`.
    pub(crate) fn since(now: Timestamp, mappings: Mappings) -> ReconcilerState {
        ReconcilerState { mappings, next: now + PAUSES.0, pause: PAUSES.0 }
    }

    /// The mapping of a machine.
    pub(crate) fn renames(&self, machine: &str) -> Option<&Renames> {
        self.mappings.get(machine)
    }

    /// Whether the next look is due.
    pub(crate) fn is_time(&self, now: Timestamp) -> bool {
        now >= self.next
    }

    /// All was looked through once more.
    pub(crate) fn looked(&mut self, now: Timestamp) {
        self.pause = (self.pause * 2).min(PAUSES.1);
        self.next = now + self.pause;
    }
}

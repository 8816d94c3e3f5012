//! Where the time comes from: the system, the database, or a test's hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use fsm_core::time::Timestamp;

/// The time that decisions are given.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// This machine's.
    System,
    /// The database's: this machine's plus the measured offset in microseconds, so that all workers agree.
    Database(Arc<AtomicI64>),
    /// Moves only by hand; microseconds since 1970.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only a test holds the clock"))]
    Held(Arc<AtomicI64>),
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Clock::System => SystemTime::now().into(),
            Clock::Database(offset_us) => {
                let system = Timestamp::from(SystemTime::now());
                Timestamp::from_micros(system.as_micros().saturating_add(offset_us.load(Ordering::Relaxed)))
            }
            Clock::Held(us) => Timestamp::from_micros(us.load(Ordering::SeqCst)),
        }
    }

    /// The database said `database_us` between the system times `before` and `after`.
    pub(crate) fn measured(&self, database: Timestamp, before: SystemTime, after: SystemTime) {
        if let Clock::Database(offset_us) = self {
            let middle = Timestamp::from(before) + after.duration_since(before).unwrap_or_default() / 2;
            offset_us.store(database.as_micros().saturating_sub(middle.as_micros()), Ordering::Relaxed);
        }
    }

    /// How long to sleep, in real time, until `at`; `None` where only a hand moves the clock.
    pub(crate) fn until(&self, at: Timestamp) -> Option<Duration> {
        match self {
            Clock::Held(_) => None,
            _ => Some(at.since(self.now())),
        }
    }
}

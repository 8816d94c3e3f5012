//! The sources of time: the system, the database, or a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use fsm_core::time::Timestamp;

/// The clock that decisions use.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The clock of this machine.
    System,
    /// The clock of the database: this machine's clock plus the measured offset in microseconds, so that all workers agree.
    Database(Arc<AtomicI64>),
    /// A clock that only a test moves; microseconds since 1970.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only a test holds the clock"))]
    Held(Arc<AtomicI64>),
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Clock::System => system().into(),
            Clock::Database(offset_us) => {
                let system = Timestamp::from(system());
                Timestamp::from_micros(system.as_micros().saturating_add(offset_us.load(Ordering::Relaxed)))
            }
            Clock::Held(us) => Timestamp::from_micros(us.load(Ordering::SeqCst)),
        }
    }

    /// Stores the offset of the database's clock, which showed `database` between the system times `before` and `after`.
    pub(crate) fn measured(&self, database: Timestamp, before: SystemTime, after: SystemTime) {
        if let Clock::Database(offset_us) = self {
            let middle = Timestamp::from(before) + after.duration_since(before).unwrap_or_default() / 2;
            offset_us.store(database.as_micros().saturating_sub(middle.as_micros()), Ordering::Relaxed);
        }
    }

    /// Returns the real time to sleep until `at`; `None` for a clock that only a test moves.
    pub(crate) fn until(&self, at: Timestamp) -> Option<Duration> {
        match self {
            Clock::Held(_) => None,
            _ => Some(at.since(self.now())),
        }
    }
}

/// Returns the time of this machine's clock, or the wrong time that a test has set.
#[cfg(not(feature = "testing"))]
pub(crate) fn system() -> SystemTime {
    SystemTime::now()
}

#[cfg(feature = "testing")]
pub(crate) fn system() -> SystemTime {
    let ahead_us = AHEAD_US.load(Ordering::Relaxed);
    let by = Duration::from_micros(ahead_us.unsigned_abs());
    if ahead_us < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
}

/// The microseconds by which this process's clock is ahead of the machine's; negative is behind.
#[cfg(feature = "testing")]
static AHEAD_US: AtomicI64 = AtomicI64::new(0);

/// Simulates a wrong clock: this process's clock is ahead of the machine's by `us` microseconds, or behind it if `us` is negative.
#[cfg(feature = "testing")]
pub fn set_ahead(us: i64) {
    AHEAD_US.store(us, Ordering::Relaxed);
}

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
            Clock::System => system().into(),
            Clock::Database(offset_us) => {
                let system = Timestamp::from(system());
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

/// What this machine's clock shows, or would show where a test has set it wrong.
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

/// How far this process's clock is ahead of the machine's, in microseconds.
#[cfg(feature = "testing")]
static AHEAD_US: AtomicI64 = AtomicI64::new(0);

/// Sets this process's clock ahead of the machine's, or behind it, as a machine's is whose clock is wrong.
#[cfg(feature = "testing")]
pub fn set_ahead(us: i64) {
    AHEAD_US.store(us, Ordering::Relaxed);
}

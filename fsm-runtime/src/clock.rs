//! The sources of time: the system, the database, or a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fsm_core::time::{Timestamp, micros};

/// The maximum age of a measurement. An older one is repeated even if the connection is not new.
const MEASURED_FOR: Duration = Duration::from_secs(60);

/// The clock that decisions use.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The clock of this machine.
    System,
    /// The database's clock, so that all workers agree. It never goes backwards within a process.
    Database(Arc<Measured>),
    /// A clock that only a test moves, in microseconds since 1970.
    #[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only a test holds the clock"))]
    Held(Arc<AtomicI64>),
}

/// The last measurement of the database's time, extended by this process's monotonic clock. Changes of the system clock have no effect.
#[derive(Debug)]
pub(crate) struct Measured {
    origin: Instant,
    /// The database's time at the origin, in microseconds since 1970. Before the first measurement it is this machine's time.
    at_origin_us: AtomicI64,
    /// The latest time that was returned.
    latest_us: AtomicI64,
    /// The newest connection on which the time was measured. Connections are numbered from 1.
    connection: AtomicU64,
    /// The time of the last measurement, in microseconds since the origin.
    measured_us: AtomicI64,
}

impl Measured {
    fn now_us(&self) -> i64 {
        self.at_origin_us.load(Ordering::Relaxed).saturating_add(micros(self.origin.elapsed()))
    }

    fn is_measured(&self) -> bool {
        self.connection.load(Ordering::Acquire) > 0
    }

    fn now(&self) -> Timestamp {
        let now_us = self.now_us();
        if !self.is_measured() {
            return Timestamp::from_micros(now_us);
        }
        // After a failover the clock of the new server may be behind that of the old one.
        Timestamp::from_micros(self.latest_us.fetch_max(now_us, Ordering::Relaxed).max(now_us))
    }
}

impl Clock {
    /// The database's clock before its first measurement.
    pub(crate) fn database() -> Clock {
        Clock::Database(Arc::new(Measured {
            origin: Instant::now(),
            at_origin_us: AtomicI64::new(Timestamp::from(system()).as_micros()),
            latest_us: AtomicI64::new(i64::MIN),
            connection: AtomicU64::new(0),
            measured_us: AtomicI64::new(0),
        }))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Clock::System => system().into(),
            Clock::Database(measured) => measured.now(),
            Clock::Held(us) => Timestamp::from_micros(us.load(Ordering::SeqCst)),
        }
    }

    /// Returns true if the database's time must be measured on this connection: the connection is newer than all that were measured, so it
    /// may lead to another server, or the last measurement is old.
    pub(crate) fn is_due(&self, connection: u64) -> bool {
        let Clock::Database(measured) = self else { return false };
        let age_us = micros(measured.origin.elapsed()).saturating_sub(measured.measured_us.load(Ordering::Relaxed));
        measured.connection.load(Ordering::Acquire) < connection || age_us >= micros(MEASURED_FOR)
    }

    /// Stores a measurement: the server returned the time `database` on this connection, between `before` and `after`.
    pub(crate) fn measured(&self, database: Timestamp, before: Instant, after: Instant, connection: u64) {
        let Clock::Database(measured) = self else { return };
        let since_origin = |at: Instant| at.saturating_duration_since(measured.origin);
        let middle = since_origin(before) + after.saturating_duration_since(before) / 2;
        measured.at_origin_us.store(database.as_micros().saturating_sub(micros(middle)), Ordering::Relaxed);
        measured.measured_us.store(micros(since_origin(after)), Ordering::Relaxed);
        measured.connection.fetch_max(connection, Ordering::Release);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(clock: &Clock, database_us: i64, connection: u64) {
        let now = Instant::now();
        clock.measured(Timestamp::from_micros(database_us), now, now, connection);
    }

    const AN_HOUR_US: i64 = 3_600_000_000;

    #[test]
    fn the_time_of_a_database_that_fails_over_to_a_slower_clock_does_not_go_backwards() {
        let clock = Clock::database();
        measure(&clock, 2 * AN_HOUR_US, 1);
        let before = clock.now();
        assert!(before >= Timestamp::from_micros(2 * AN_HOUR_US));
        measure(&clock, AN_HOUR_US, 2);
        assert!(clock.now() >= before);
        measure(&clock, 3 * AN_HOUR_US, 3);
        assert!(clock.now() >= Timestamp::from_micros(3 * AN_HOUR_US), "and it goes on once that clock has caught up");
    }

    #[test]
    fn the_time_before_the_first_measurement_binds_nothing() {
        let clock = Clock::database();
        assert!(clock.now() > Timestamp::from_micros(AN_HOUR_US));
        measure(&clock, AN_HOUR_US, 1);
        assert!(clock.now() < Timestamp::from_micros(2 * AN_HOUR_US));
    }

    #[test]
    fn the_time_is_measured_once_on_each_new_connection() {
        let clock = Clock::database();
        assert!(clock.is_due(1));
        measure(&clock, AN_HOUR_US, 2);
        assert!(!clock.is_due(1) && !clock.is_due(2));
        assert!(clock.is_due(3), "it may lead to another server");
        assert!(!Clock::System.is_due(1));
    }
}

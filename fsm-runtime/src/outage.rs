//! The log lines about a database that cannot be used: one at once, one each time the outage has lasted twice as long, and one at its end.
//! All components of an engine share them, so that a minute makes a handful of lines and not one for each failure.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fsm_core::duration;
use fsm_store::error::{Class, StoreError};

use crate::error::{Error, Kind};
use crate::guard;

/// The second line comes after this time, the next ones each after twice the time of the one before.
const SECOND_LINE: Duration = Duration::from_secs(10);
/// A success ends an outage only if nothing has failed for this long. Otherwise a database that answers now and then would make two lines
/// each time.
const CALM: Duration = Duration::from_secs(3);

/// Consecutive failures of one kind, of which few are logged.
#[derive(Debug)]
pub(crate) struct Repeated {
    first: Instant,
    last: Instant,
    next_line: Duration,
    pub(crate) failures: u64,
}

impl Repeated {
    /// The first failure, which is logged.
    pub(crate) fn first(now: Instant) -> Repeated {
        Repeated { first: now, last: now, next_line: SECOND_LINE, failures: 1 }
    }

    /// Counts another failure. Returns true if it is logged.
    pub(crate) fn another(&mut self, now: Instant) -> bool {
        self.failures += 1;
        self.last = now;
        let lasts = now.duration_since(self.first);
        let is_worth_a_line = lasts >= self.next_line;
        while self.next_line <= lasts {
            self.next_line *= 2;
        }
        is_worth_a_line
    }

    /// The time from the first failure to the last one.
    pub(crate) fn lasted(&self) -> Duration {
        self.last.duration_since(self.first)
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= CALM
    }
}

/// The outage of the database, as this process sees it.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// False if there is none. It is read after each commit, without the lock.
    is_on: AtomicBool,
    failures: Mutex<Option<Repeated>>,
}

impl Outage {
    /// Counts the failure and logs the outage, if the database cannot be used at all. Returns true then: the caller logs nothing.
    pub(crate) fn reports(&self, error: &Error) -> bool {
        matches!(error.cause(), Kind::Store(error) if self.reports_of_store(error))
    }

    /// The same for an error of the store.
    pub(crate) fn reports_of_store(&self, error: &StoreError) -> bool {
        error.class() == Class::Unavailable && {
            self.failed(error);
            true
        }
    }

    fn failed(&self, error: &StoreError) {
        let now = Instant::now();
        let to_log = {
            let mut failures = guard::lock(&self.failures);
            self.is_on.store(true, Ordering::Relaxed);
            match &mut *failures {
                Some(failures) => failures.another(now).then(|| (failures.lasted(), failures.failures)),
                none => {
                    *none = Some(Repeated::first(now));
                    Some((Duration::ZERO, 1))
                }
            }
        };
        if let Some((lasts, failures)) = to_log {
            tracing::warn!(%error, failures, lasts = %duration::display(lasts), "the database cannot be used, and is tried again");
        }
    }

    /// Records that an operation on the database succeeded. Logs the end of an outage.
    pub(crate) fn succeeded(&self) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let over = {
            let mut failures = guard::lock(&self.failures);
            let over = failures.take_if(|failures| failures.is_over(now));
            self.is_on.store(failures.is_some(), Ordering::Relaxed);
            over
        };
        if let Some(over) = over {
            let lasted = duration::display(over.lasted());
            tracing::info!(failures = over.failures, %lasted, "the database can be used again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_failures_each_millisecond_makes_four_lines() {
        let begun = Instant::now();
        let mut failures = Repeated::first(begun);
        let logged: Vec<_> = (1..60_000).filter(|ms| failures.another(begun + Duration::from_millis(*ms))).collect();
        assert_eq!((logged, failures.failures), (vec![10_000, 20_000, 40_000], 60_000));
        assert!(!failures.is_over(begun + Duration::from_secs(61)), "the database may answer now and then");
        assert!(failures.is_over(begun + Duration::from_secs(63)));
    }

    #[test]
    fn failures_that_are_far_apart_make_a_line_each() {
        let begun = Instant::now();
        let mut failures = Repeated::first(begun);
        assert!([1, 2, 4].into_iter().all(|hours| failures.another(begun + Duration::from_secs(3600 * hours))));
    }
}

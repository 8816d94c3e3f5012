//! Due rows that failed and the times of their retries. They are kept in memory and left out of the scans, so that they do not displace
//! other rows.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::ids::{CallId, TimerId};
use fsm_core::time::Timestamp;
use fsm_store::claim::{DueCall, Except};

use crate::error::{Error, Kind};

/// The wait after the first failure. Each further wait is twice as long, up to the maximum.
const FIRST: Duration = Duration::from_millis(100);
/// The maximum wait for a row that was refused or cannot be read.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);
/// The maximum wait for a row that another transaction has locked. It is short because such locks are released soon.
const LONGEST_OF_LOCKED: Duration = Duration::from_secs(1);
/// The maximum number of rows of one kind that are kept.
const MOST: usize = 10_000;
/// The maximum number of failed rows that one scan retries. Each of them makes the batch of other rows fail once more.
pub(crate) const AGAIN: usize = 16;

/// The failed rows of one kind.
pub(crate) struct Failing<K>(Mutex<HashMap<K, Failure>>);

#[derive(Debug, Clone, Copy)]
struct Failure {
    tries: u32,
    next: Timestamp,
}

/// The maximum wait for a row that failed with this error.
pub(crate) fn longest(error: &Error) -> Duration {
    match error.cause() {
        Kind::Store(error) if error.is_locked() => LONGEST_OF_LOCKED,
        _ => LONGEST,
    }
}

/// The state of a row after another failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Again {
    /// The number of consecutive failures.
    pub(crate) tries: u32,
    pub(crate) wait: Duration,
}

impl Again {
    /// Returns true if this failure is logged: the first, the second, the fourth, the eighth and so on.
    pub(crate) fn is_logged(self) -> bool {
        self.tries.is_power_of_two()
    }
}

impl<K> Default for Failing<K> {
    fn default() -> Self {
        Failing(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Failing<K> {
    /// Records a failure. The row is left out of the scans and retried later.
    pub(crate) fn failed(&self, row: K, now: Timestamp, longest: Duration) -> Again {
        let mut rows = self.rows();
        let tries = rows.get(&row).map_or(0, |failure| failure.tries).saturating_add(1);
        let wait = FIRST.saturating_mul(1 << (tries - 1).min(20)).min(longest);
        if rows.len() >= MOST && !rows.contains_key(&row) {
            // The row that is retried next is removed to make room.
            let soonest = rows.iter().min_by_key(|(_, failure)| failure.next).map(|(row, _)| row.clone());
            soonest.map(|soonest| rows.remove(&soonest));
        }
        rows.insert(row, Failure { tries, next: now + wait });
        Again { tries, wait }
    }

    /// Records that the row succeeded or no longer exists.
    pub(crate) fn passed(&self, row: K) {
        self.rows().remove(&row);
    }

    /// The rows whose wait is over, in the order of their retry times.
    pub(crate) fn due(&self, now: Timestamp, most: usize) -> Vec<K> {
        let mut due: Vec<_> =
            self.rows().iter().filter(|(_, failure)| failure.next <= now).map(|(row, failure)| (failure.next, row.clone())).collect();
        due.sort_by_key(|(next, _)| *next);
        due.into_iter().take(most).map(|(_, row)| row).collect()
    }

    /// The rows whose wait is not over.
    pub(crate) fn waiting(&self, now: Timestamp) -> Vec<K> {
        self.rows().iter().filter(|(_, failure)| failure.next > now).map(|(row, _)| row.clone()).collect()
    }

    /// The time of the next retry.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.rows().values().map(|failure| failure.next).min()
    }

    /// All failed rows.
    pub(crate) fn all(&self) -> Vec<K> {
        self.rows().keys().cloned().collect()
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<K, Failure>> {
        self.0.lock().expect("no code panics while it holds what failed")
    }
}

/// The failed rows of all machines that a worker serves.
#[derive(Default)]
pub(crate) struct Failures {
    /// The failed rows of each machine, in the order of the served machines.
    pub(crate) of: Vec<OfMachine>,
    /// Attempts of dead sessions that cannot be closed.
    pub(crate) orphans: Failing<CallId>,
    /// Lines of the outbox that cannot be delivered, by receiver.
    pub(crate) lines: Failing<InstanceKey>,
    /// Schedules that cannot send, by name.
    pub(crate) schedules: Failing<Arc<str>>,
}

/// The failed rows of one machine.
#[derive(Default)]
pub(crate) struct OfMachine {
    /// Attempts that cannot be claimed.
    pub(crate) calls: Failing<DueCall>,
    /// Timers that cannot fire.
    pub(crate) timers: Failing<TimerId>,
    /// Timers that are being fired. The scans leave them out meanwhile.
    firing: Mutex<HashSet<TimerId>>,
}

/// A timer that is being fired. The scans leave it out until this value is dropped.
pub(crate) struct Firing<'o> {
    of: &'o OfMachine,
    timer: TimerId,
}

impl Failures {
    pub(crate) fn of(machines: usize) -> Failures {
        Failures { of: (0..machines).map(|_| OfMachine::default()).collect(), ..Failures::default() }
    }

    /// Discards all entries, as a restart of the process does.
    #[cfg(feature = "testing")]
    pub(crate) fn forget(&self) {
        self.orphans.rows().clear();
        self.lines.rows().clear();
        self.schedules.rows().clear();
        for of in &self.of {
            of.calls.rows().clear();
            of.timers.rows().clear();
            of.firing().clear();
        }
    }
}

impl OfMachine {
    /// The rows that a scan leaves out.
    pub(crate) fn except(&self) -> Except {
        let mut timers = self.timers.all();
        timers.extend(self.firing().iter().copied());
        Except::of(self.calls.all().into_iter().map(|due| due.instance), timers)
    }

    /// The attempts without a limit that are claimed again.
    pub(crate) fn unlimited(&self, now: Timestamp) -> Vec<DueCall> {
        self.calls.due(now, AGAIN).into_iter().filter(|due| !due.is_limited).collect()
    }

    /// The instances that a claim under a limit leaves out: those whose attempt failed, except for the limited ones that are tried again.
    pub(crate) fn except_limited(&self, now: Timestamp) -> Vec<String> {
        let again = self.calls.due(now, AGAIN);
        let left_out = self.calls.all().into_iter().filter(|due| !(due.is_limited && again.contains(due)));
        Except::of(left_out.map(|due| due.instance), []).instances
    }

    /// The time of the next retry.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        [self.calls.next(), self.timers.next()].into_iter().flatten().min()
    }

    /// Marks the timer as being fired until the returned value is dropped. `None` if it is already being fired.
    pub(crate) fn fire(&self, timer: TimerId) -> Option<Firing<'_>> {
        let is_first = self.firing().insert(timer);
        is_first.then(|| Firing { of: self, timer })
    }

    fn firing(&self) -> MutexGuard<'_, HashSet<TimerId>> {
        self.firing.lock().expect("no code panics while it holds what fires")
    }
}

impl Drop for Firing<'_> {
    fn drop(&mut self) {
        self.of.firing().remove(&self.timer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(ms * 1000)
    }

    #[test]
    fn a_row_that_fails_is_tried_less_and_less_often_and_told_less_and_less_often() {
        let failing = Failing::default();
        let (mut now, mut tries, mut told) = (at(0), 0, 0);
        while now < at(600_000) {
            assert_eq!(failing.due(now, AGAIN), if tries == 0 { vec![] } else { vec![7] });
            let again = failing.failed(7, now, LONGEST);
            (tries, told) = (again.tries, told + u32::from(again.is_logged()));
            now = failing.next().expect("it is tried again");
            assert_eq!(now, failing.next().expect("it is tried again"));
        }
        assert_eq!((tries, told), (19, 5), "in ten minutes");
        failing.passed(7);
        assert_eq!((failing.all(), failing.next()), (vec![], None));
        assert_eq!(failing.failed(7, now, LONGEST), Again { tries: 1, wait: FIRST });
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let failing = Failing::default();
        for n in 0..MOST as i64 + 5 {
            failing.failed(n, at(n), LONGEST);
        }
        assert_eq!(failing.all().len(), MOST);
        assert_eq!(failing.due(at(1_000_000), 1), [5], "those that are tried soonest make room");
    }

    #[test]
    fn a_timer_that_fires_is_left_out_until_it_has() {
        let of = OfMachine::default();
        let timer = TimerId(uuid::Uuid::nil());
        let firing = of.fire(timer);
        assert!(firing.is_some() && of.fire(timer).is_none());
        assert_eq!(of.except().timers, ["00000000000000000000000000000000"]);
        drop(firing);
        assert!(of.except().timers.is_empty());
    }
}

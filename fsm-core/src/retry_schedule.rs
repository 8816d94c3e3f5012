//! A retry policy as data: every attempt with its wait and its earliest start, totals, and warnings.

use std::fmt;
use std::time::Duration;

use crate::duration::display;
use crate::retry::{Next, Retry, RetryAdvice, RetryState};
use crate::time::Timestamp;

/// The attempts of a policy, without jitter, for attempts that take no time themselves.
#[derive(Debug, Clone, Copy)]
pub struct RetrySchedule<'r> {
    policy: &'r Retry,
}

/// One attempt of a [`RetrySchedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The wait before the attempt.
    pub wait: Duration,
    /// The earliest start, counted from the first attempt.
    pub at: Duration,
}

/// The totals of a schedule.
struct Sum {
    attempts: u32,
    /// The start of the last attempt.
    at: Duration,
    /// The longest wait, if there is one.
    longest: Option<Duration>,
}

/// The number of multiplications after which a wait counts as constant.
const MOST_STEPS: u32 = 100_000;

/// A contradiction within a policy, or between a policy and the state it is used in. `Display` is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warning {
    /// No wait reaches the maximum.
    MaximumNeverReached {
        /// The maximum.
        max: Duration,
        /// The longest wait.
        longest: Duration,
    },
    /// `within` ends the retries before their count does.
    CutByWithin {
        /// The limit.
        within: Duration,
        /// The attempts that take place.
        attempts: u32,
        /// The attempts that the count allows.
        of: u32,
    },
    /// The state's timer is due before the last attempt, and waits for it.
    LongerThanTimer {
        /// The timer.
        timer: Duration,
        /// The time from the first attempt to the last; `None` is unlimited.
        total: Option<Duration>,
    },
}

impl Retry {
    /// The policy as data, decided by the same code that decides at run time.
    pub fn schedule(&self) -> RetrySchedule<'_> {
        RetrySchedule { policy: self }
    }
}

impl RetrySchedule<'_> {
    /// Every attempt, in order. The iterator is infinite without a count and `within`.
    pub fn attempts(&self) -> impl Iterator<Item = Planned> + use<> {
        let first = Planned { attempt: 1, wait: Duration::ZERO, at: Duration::ZERO };
        let retry_state = RetryState::fresh(Some(self.policy.clone()), Timestamp::default());
        std::iter::successors(Some((first, retry_state)), |(last, retry_state)| {
            match retry_state.after(RetryAdvice::Default, Timestamp::default() + last.at, 0.0) {
                Next::Again { wait, retry_state } => {
                    let next = Planned { attempt: last.attempt.saturating_add(1), wait, at: last.at.saturating_add(wait) };
                    Some((next, *retry_state))
                }
                Next::Exhausted(_) => None,
            }
        })
        .map(|(planned, _)| planned)
    }

    /// The time from the first attempt to the start of the last; `None` is unlimited.
    pub fn total(&self) -> Option<Duration> {
        self.summed().map(|sum| sum.at)
    }

    /// The totals of all attempts; `None` is unlimited. Attempts after the last growth are calculated, not iterated: there may be
    /// billions of them.
    fn summed(&self) -> Option<Sum> {
        let mut sum = Sum { attempts: 1, at: Duration::ZERO, longest: None };
        let mut retry_state = RetryState::fresh(Some(self.policy.clone()), Timestamp::default());
        for step in 0.. {
            let Next::Again { wait, retry_state: next } = retry_state.after(RetryAdvice::Default, Timestamp::default() + sum.at, 0.0)
            else {
                break;
            };
            let is_steady = next.backoff == retry_state.backoff || step == MOST_STEPS;
            let more = if is_steady { self.more(&retry_state, sum.at, wait)? } else { 1 };
            sum.attempts = sum.attempts.saturating_add(more);
            sum.at = sum.at.saturating_add(wait.saturating_mul(more));
            sum.longest = sum.longest.max(Some(wait));
            if is_steady {
                break;
            }
            retry_state = *next;
        }
        Some(sum)
    }

    /// The number of attempts that follow, each after `wait`; `None` is unlimited.
    fn more(&self, retry_state: &RetryState, at: Duration, wait: Duration) -> Option<u32> {
        let left = self.policy.within.map(|within| within.saturating_sub(at).as_micros());
        let fit = left.and_then(|left| left.checked_div(wait.as_micros())).map(|fit| u32::try_from(fit).unwrap_or(u32::MAX));
        match (retry_state.remaining, fit) {
            (Some(remaining), Some(fit)) => Some(remaining.min(fit)),
            (remaining, fit) => remaining.or(fit),
        }
    }

    /// The warnings about the policy; with `timer`, also about the state that the attempts are made in.
    pub fn warnings(&self, timer: Option<Duration>) -> Vec<Warning> {
        let policy = self.policy;
        let mut warnings = Vec::new();
        let sum = self.summed();
        let total = sum.as_ref().map(|sum| sum.at);
        if policy.delay.is_none()
            && let Some(longest) = sum.as_ref().and_then(|sum| sum.longest).filter(|longest| *longest < policy.max)
        {
            warnings.push(Warning::MaximumNeverReached { max: policy.max, longest });
        }
        if let (Some(within), Some(of), Some(sum)) = (policy.within, policy.max_attempts, &sum)
            && sum.attempts < of
        {
            warnings.push(Warning::CutByWithin { within, attempts: sum.attempts, of });
        }
        if let Some(timer) = timer.filter(|timer| total.is_none_or(|total| total > *timer)) {
            warnings.push(Warning::LongerThanTimer { timer, total });
        }
        warnings
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::MaximumNeverReached { max, longest } => {
                write!(f, "the maximum of {} is never reached: the longest wait is {}", display(*max), display(*longest))
            }
            Warning::CutByWithin { within, attempts, of } => {
                write!(f, "within {} only {attempts} of {of} attempts take place", display(*within))
            }
            Warning::LongerThanTimer { timer, total } => {
                let total = total.map_or("no end".to_owned(), display);
                write!(f, "the state's timer of {} comes due before the attempts end ({total}), and waits for them", display(*timer))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_schedule_says_what_a_policy_comes_to() {
        let policy = Retry::doubling(s(5), s(3600)).retries_at_most(10);
        let attempts: Vec<_> = policy.schedule().attempts().collect();
        assert_eq!((attempts.len(), attempts[10].wait, attempts[10].at), (11, s(2560), s(5115)));
        assert_eq!(policy.schedule().total(), Some(s(3600 + 25 * 60 + 15)));
        assert_eq!(Retry::every(s(5)).schedule().total(), None);
        assert_eq!(Retry::every(s(5)).schedule().attempts().nth(99).map(|planned| planned.at), Some(s(495)));
    }

    #[test]
    fn billions_of_attempts_are_counted_and_not_gone_through() {
        let many = Retry::doubling(s(1), s(4)).retries_at_most(4_000_000_000);
        assert_eq!(many.schedule().total(), Some(s(1 + 2 + 4 * 3_999_999_998)));
        let long = Retry { within: Some(s(4_000_000_000)), ..Retry::doubling(s(1), s(4)) };
        assert_eq!(long.schedule().total(), Some(s(3 + 4 * ((4_000_000_000 - 3) / 4))));
        let all: Vec<_> = Retry { within: Some(s(60)), ..Retry::doubling(s(1), s(4)) }.schedule().attempts().collect();
        assert_eq!(Retry { within: Some(s(60)), ..Retry::doubling(s(1), s(4)) }.schedule().total(), all.last().map(|last| last.at));
        let never = Retry { within: Some(s(60)), ..Retry::every(Duration::ZERO) };
        assert_eq!(never.schedule().total(), None, "without a wait the time never runs out");
    }

    #[test]
    fn a_policy_that_contradicts_itself_is_told_so() {
        let policy = Retry::doubling(s(5), s(3600)).retries_at_most(10);
        let cut = Retry { within: Some(s(60)), ..policy.clone() };
        let cases = [
            (&policy, None, vec!["the maximum of 1h is never reached: the longest wait is 42m40s"]),
            (&cut, None, vec!["the maximum of 1h is never reached: the longest wait is 20s", "within 1m only 4 of 11 attempts take place"]),
            (
                &policy,
                Some(s(1800)),
                vec![
                    "the maximum of 1h is never reached: the longest wait is 42m40s",
                    "the state's timer of 30m comes due before the attempts end (1h25m15s), and waits for them",
                ],
            ),
        ];
        for (policy, timer, expected) in cases {
            let told: Vec<_> = policy.schedule().warnings(timer).iter().map(ToString::to_string).collect();
            assert_eq!(told, expected);
        }
        let sound = Retry::every(s(5)).retries_at_most(3);
        assert_eq!(sound.schedule().warnings(Some(s(60))), []);
        let endless = Retry::every(s(5));
        assert_eq!(
            endless.schedule().warnings(Some(s(60)))[0].to_string(),
            "the state's timer of 1m comes due before the attempts end (no end), and waits for them"
        );
    }
}

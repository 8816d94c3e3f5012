//! Retry policies: the policy that a user declares, and the retry state that a call carries.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The policy of `#[retry(…)]`. It is copied onto each call at its creation, so that a deploy does not change a retry that is in
/// progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// The maximum number of executions, including the first; `None` is unlimited. Never 0.
    pub max_attempts: Option<u32>,
    /// The wait before the first retry.
    #[serde(rename = "min_us", with = "as_micros")]
    pub min: Duration,
    /// The maximum computed wait.
    #[serde(rename = "max_us", with = "as_micros")]
    pub max: Duration,
    /// The backoff coefficient: the factor between two waits; 1.0 or more.
    pub backoff: f64,
    /// The maximum share of a wait that jitter adds: 0.1 adds 0 to 10 %.
    #[serde(default)]
    pub jitter: f64,
    /// The maximum time between the due time of the first attempt and the start of the last one.
    #[serde(rename = "within_us", default, skip_serializing_if = "Option::is_none", with = "as_optional_micros")]
    pub within: Option<Duration>,
    /// Names of the error types that are not retried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_up_on: Vec<String>,
    /// The name of the user's function that says whether an error is permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up_if: Option<String>,
    /// The name of the user's delay function, which replaces `min`, `max` and `backoff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The name of the verb that runs when the attempts are exhausted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch: Option<String>,
}

/// The retry advice of an error (`Failure::retry_after`, `Failure::permanent`, `Retryable`) or of a delay function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryAdvice {
    /// The policy decides.
    #[default]
    Default,
    /// No retry.
    Never,
    /// Retry after exactly this wait. It replaces the policy's interval and maximum, but not its count and `within`.
    After(Duration),
}

/// The retry state of a call, as its newest attempt carries it.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryState {
    /// The policy; `None` means no retries.
    pub policy: Option<Retry>,
    /// Retries left after this attempt; `None` is unlimited.
    pub remaining: Option<u32>,
    /// The wait before the next attempt if this one fails.
    pub backoff: Duration,
    /// The due time of the first attempt; `within` counts from here.
    pub first_at: Timestamp,
    /// The number of attempts of the call that snoozed. They used no retry.
    pub snoozes: u32,
}

/// The consequence of a failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Another attempt after `wait`.
    Again {
        /// The wait from the end of the failed attempt.
        wait: Duration,
        /// The retry state of the next attempt.
        retry_state: Box<RetryState>,
    },
    /// No further attempt.
    Exhausted(Exhausted),
}

/// The reason why there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// There is no retry policy.
    NoPolicy,
    /// All retries are used.
    Count,
    /// The next attempt would start later than `within` allows.
    Within,
    /// The error or the delay function gave up.
    Advised,
}

impl Retry {
    /// The default maximum of a growing wait.
    pub const DEFAULT_MAX: Duration = Duration::from_secs(3600);

    /// The reason why the policy is invalid; `None` for a valid policy. The macros reject invalid policies at compile time; a policy can
    /// also be built at run time.
    pub fn defect(&self) -> Option<&'static str> {
        let cases = [
            (!self.backoff.is_finite() || self.backoff < 1.0, "its backoff is not a number from 1.0"),
            (!self.jitter.is_finite() || self.jitter < 0.0, "its jitter is not a number from 0.0"),
            (self.max_attempts == Some(0), "it allows no attempt"),
            (self.min > self.max, "its first wait is longer than its longest"),
        ];
        cases.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
    }

    /// Attempts after the first: `max_attempts - 1`; `None` is unlimited.
    pub fn retries(&self) -> Option<u32> {
        self.max_attempts.map(|attempts| attempts.saturating_sub(1))
    }

    /// The wait after `wait`: multiplied by `backoff`, at most `max`. Saturates.
    pub fn grown(&self, wait: Duration) -> Duration {
        // A factor that is below one or not a number would shrink the wait to zero and cause attempts without a pause.
        let us = wait.as_micros() as f64 * self.backoff.max(1.0);
        let max_us = self.max.as_micros() as f64;
        // Floats lose precision for very long waits. The wait never shrinks because of that.
        if us < max_us { Duration::from_micros(us as u64).max(wait).min(self.max) } else { self.max }
    }

    /// The number of multiplications that lead from `min` to `wait`.
    fn times_grown(&self, wait: Duration) -> u32 {
        let waits = std::iter::successors(Some(self.min.min(self.max)), |wait| Some(self.grown(*wait)));
        waits.take(MANY as usize).take_while(|reached| *reached < wait).count() as u32
    }

    /// A fixed wait without a limit on attempts, as `#[retry("5s")]`.
    pub fn every(wait: Duration) -> Retry {
        Retry { max: wait, ..Retry::doubling(wait, wait) }
    }

    /// Exponential backoff from `min` to `max` without a limit on attempts, as `#[retry("5s", "10m")]`.
    pub fn doubling(min: Duration, max: Duration) -> Retry {
        Retry {
            max_attempts: None,
            min,
            max,
            backoff: 2.0,
            jitter: 0.0,
            within: None,
            give_up_on: Vec::new(),
            give_up_if: None,
            delay: None,
            catch: None,
        }
    }

    /// The same policy with a limit on retries.
    pub fn retries_at_most(self, retries: u32) -> Retry {
        Retry { max_attempts: Some(retries.saturating_add(1)), ..self }
    }
}

impl RetryState {
    /// The retry state of a first attempt that is due at `first_at`.
    pub fn fresh(policy: Option<Retry>, first_at: Timestamp) -> RetryState {
        let (remaining, backoff) = match &policy {
            Some(policy) => (policy.retries(), policy.min.min(policy.max)),
            None => (Some(0), Duration::ZERO),
        };
        RetryState { policy, remaining, backoff, first_at, snoozes: 0 }
    }

    /// Decides what follows an attempt that failed at `failed_at`. `roll`, from 0 to 1, is the random number for jitter.
    pub fn after(&self, advice: RetryAdvice, failed_at: Timestamp, roll: f64) -> Next {
        let Some(policy) = &self.policy else { return Next::Exhausted(Exhausted::NoPolicy) };
        if self.remaining == Some(0) {
            return Next::Exhausted(Exhausted::Count);
        }
        let (wait, backoff) = match advice {
            RetryAdvice::Never => return Next::Exhausted(Exhausted::Advised),
            RetryAdvice::After(wait) => (wait, self.backoff),
            RetryAdvice::Default => (jittered(self.backoff, policy.jitter, roll), policy.grown(self.backoff)),
        };
        if policy.within.is_some_and(|within| failed_at + wait > self.first_at + within) {
            return Next::Exhausted(Exhausted::Within);
        }
        let remaining = self.remaining.map(|left| left - 1);
        Next::Again { wait, retry_state: Box::new(RetryState { remaining, backoff, ..self.clone() }) }
    }

    /// The retry state after an attempt that snoozed at `now`: it uses no retry, and the backoff does not grow. `None` if the next attempt
    /// would start later than `within` allows.
    pub fn snoozed(&self, wait: Duration, now: Timestamp) -> Option<RetryState> {
        let within = self.policy.as_ref().and_then(|policy| policy.within);
        let is_in_time = within.is_none_or(|within| now + wait <= self.first_at + within);
        is_in_time.then(|| RetryState { snoozes: self.snoozes.saturating_add(1), ..self.clone() })
    }

    /// The retry state of the same call under another policy. The retries that were used stay used, and the wait has
    /// grown as often.
    pub fn under(&self, policy: Retry) -> RetryState {
        let used = match (self.policy.as_ref().and_then(Retry::retries), self.remaining) {
            (Some(retries), Some(left)) => retries.saturating_sub(left),
            // Without a limit, retries are not counted. The wait shows how often it has grown, up to its maximum.
            _ => self.policy.as_ref().map_or(0, |old| old.times_grown(self.backoff)),
        };
        let fresh = RetryState::fresh(Some(policy), self.first_at);
        let grown = |wait: Duration| fresh.policy.as_ref().map_or(wait, |policy| policy.grown(wait));
        let backoff = (0..used.min(MANY)).fold(fresh.backoff, |wait, _| grown(wait));
        RetryState { remaining: fresh.remaining.map(|left| left.saturating_sub(used)), backoff, snoozes: self.snoozes, ..fresh }
    }

    /// The maximum number of attempts, seen from attempt `attempt`: its number plus the retries left. `None` is unlimited.
    pub fn max_attempts(&self, attempt: u32) -> Option<u32> {
        self.remaining.map(|left| attempt.saturating_add(left))
    }
}

/// The number of multiplications after which any wait has reached its maximum.
const MANY: u32 = 128;

/// `wait` plus jitter of at most `share` of it. Jitter never shortens a wait.
fn jittered(wait: Duration, share: f64, roll: f64) -> Duration {
    let extra_us = wait.as_micros() as f64 * share.max(0.0) * roll.clamp(0.0, 1.0);
    wait.saturating_add(Duration::from_micros(extra_us as u64))
}

pub(crate) mod as_micros {
    use super::Duration;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(crate::time::micros(*duration))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// Serde for an optional duration as whole microseconds.
pub mod as_optional_micros {
    use super::Duration;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Serialises to a number or null.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        duration.map(crate::time::micros).serialize(to)
    }

    /// Deserialises from a number or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(max_attempts: Option<u32>, min_s: u64, max_s: u64, backoff: f64) -> Retry {
        Retry {
            max_attempts,
            min: Duration::from_secs(min_s),
            max: Duration::from_secs(max_s),
            backoff,
            jitter: 0.0,
            within: None,
            give_up_on: Vec::new(),
            give_up_if: None,
            delay: None,
            catch: None,
        }
    }

    fn waits(policy: &Retry, most: usize) -> Vec<u64> {
        policy.schedule().attempts().skip(1).take(most).map(|planned| planned.wait.as_secs()).collect()
    }

    #[test]
    fn ten_retries_from_5s_to_1h_are_eleven_executions_over_1h25m15s() {
        let policy = policy(Some(11), 5, 3600, 2.0);
        assert_eq!(waits(&policy, 99), [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]);
        let last = policy.schedule().attempts().last().unwrap();
        assert_eq!((last.attempt, last.at), (11, Duration::from_secs(3600 + 25 * 60 + 15)));
    }

    #[test]
    fn waits_by_policy() {
        let cases: [(Retry, &[u64]); 5] = [
            (policy(Some(11), 5, 5, 2.0), &[5; 10]),
            (policy(None, 5, 600, 2.0), &[5, 10, 20, 40, 80, 160, 320, 600, 600, 600]),
            (policy(Some(10), 1, 10, 2.0), &[1, 2, 4, 8, 10, 10, 10, 10, 10]),
            (policy(Some(5), 1, 3600, 3.0), &[1, 3, 9, 27]),
            (policy(Some(1), 5, 5, 2.0), &[]),
        ];
        for (policy, expected) in cases {
            assert_eq!(waits(&policy, 10), expected, "{policy:?}");
        }
    }

    #[test]
    fn an_explicit_wait_overrides_the_maximum_but_not_the_count() {
        let retry_state = RetryState::fresh(Some(policy(Some(2), 1, 10, 2.0)), Timestamp::default());
        let advice = RetryAdvice::After(Duration::from_secs(50));
        let Next::Again { wait, retry_state } = retry_state.after(advice, Timestamp::default(), 0.0) else { panic!("a retry is left") };
        assert_eq!(wait, Duration::from_secs(50));
        assert_eq!(retry_state.after(advice, Timestamp::default(), 0.0), Next::Exhausted(Exhausted::Count));
    }

    #[test]
    fn within_counts_from_the_first_attempt() {
        let limited = Retry { within: Some(Duration::from_secs(12)), ..policy(None, 5, 5, 1.0) };
        assert_eq!(waits(&limited, 10), [5, 5]);
    }

    #[test]
    fn a_snooze_uses_no_retry_and_stays_within_the_limit() {
        let limited = Retry { within: Some(Duration::from_secs(60)), ..policy(Some(2), 5, 600, 2.0) };
        let fresh = RetryState::fresh(Some(limited), Timestamp::default());
        let at = |s| Timestamp::default() + Duration::from_secs(s);
        let once = fresh.snoozed(Duration::from_secs(30), at(1)).unwrap();
        let twice = once.snoozed(Duration::from_secs(29), at(31)).unwrap();
        assert_eq!((twice.snoozes, twice.remaining, twice.backoff), (2, Some(1), Duration::from_secs(5)));
        assert_eq!(twice.snoozed(Duration::from_secs(1), at(60)), None, "later than `within` after the first attempt");
        let unlimited = RetryState::fresh(None, Timestamp::default());
        assert!(unlimited.snoozed(Duration::MAX, at(1)).is_some(), "without a policy an attempt may snooze too");
    }

    #[test]
    fn jitter_only_adds() {
        let jittery = Retry { jitter: 0.1, ..policy(None, 10, 3600, 2.0) };
        for (roll, ms) in [(0.0, 10_000), (0.5, 10_500), (1.0, 11_000)] {
            let next =
                RetryState::fresh(Some(jittery.clone()), Timestamp::default()).after(RetryAdvice::Default, Timestamp::default(), roll);
            let Next::Again { wait, retry_state } = next else { panic!("unlimited") };
            assert_eq!((wait, retry_state.backoff), (Duration::from_millis(ms), Duration::from_secs(20)));
        }
    }

    #[test]
    fn arithmetic_saturates_at_a_million_attempts() {
        let wild = Retry { backoff: 1000.0, max: Duration::from_secs(365 * 86_400), ..policy(None, 365 * 86_400, 0, 2.0) };
        let last = wild.schedule().attempts().nth(1_000_000 - 1).unwrap();
        assert_eq!((last.attempt, last.wait), (1_000_000, Duration::from_secs(365 * 86_400)));
        let retry_state = RetryState::fresh(Some(wild), Timestamp::MAX);
        assert!(matches!(retry_state.after(RetryAdvice::After(Duration::MAX), Timestamp::MAX, 1.0), Next::Again { .. }));
    }

    #[test]
    fn a_policy_survives_its_json() {
        let full = Retry {
            within: Some(Duration::from_secs(7)),
            give_up_on: vec!["Fraud".into()],
            give_up_if: Some("is_permanent".into()),
            delay: Some("d".into()),
            catch: Some("c".into()),
            jitter: 0.25,
            ..policy(None, 5, 600, 1.5)
        };
        for policy in [policy(Some(3), 1, 2, 2.0), full] {
            assert_eq!(serde_json::from_str::<Retry>(&serde_json::to_string(&policy).unwrap()).unwrap(), policy);
        }
    }
}

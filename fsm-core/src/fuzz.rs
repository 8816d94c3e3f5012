//! Fuzz tests of all parsers and counters with any text, number or bytes: nothing panics or overflows, and formatted values can be read
//! back.
//!
//! Each test has a fixed seed, which it prints. `FSM_FUZZ_SEED=…` sets another seed, `FSM_FRESH_SEEDS=1` a new one for each run, and
//! `FSM_FUZZ_CASES=…` the number of cases.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::duration;
use crate::machine::Machine;
use crate::outcome::fit;
use crate::retry::{Next, Retry, RetryAdvice, RetryState};
use crate::time::Timestamp;

/// The seed of every test, unless the environment names another.
const SEED: u64 = 17;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")))
}

fn seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(SEED, |since| since.as_nanos() as u64);
    setting("FSM_FUZZ_SEED").unwrap_or_else(|| if std::env::var_os("FSM_FRESH_SEEDS").is_some() { fresh() } else { SEED })
}

/// Tries this number of values, or the number that the environment sets.
fn try_all<S: Strategy>(cases: u32, values: S, holds: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seed = seed();
    let cases = setting("FSM_FUZZ_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(cases);
    println!("FSM_FUZZ_SEED={seed} FSM_FUZZ_CASES={cases}");
    let config = Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&values, holds).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Texts that are similar to durations.
fn almost_durations() -> impl Strategy<Value = String> {
    let piece =
        prop_oneof![Just("d"), Just("h"), Just("m"), Just("s"), Just("ms"), Just("us"), Just(" "), Just("-"), Just("µ"), Just("\0")];
    prop::collection::vec((any::<u64>().prop_map(|n| n >> (n % 64)), piece), 0..6)
        .prop_map(|pieces| pieces.iter().map(|(number, unit)| format!("{number}{unit}")).collect())
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        any::<u64>().prop_map(|us| Duration::from_micros(us >> (us % 64))),
        any::<(u64, u32)>().prop_map(|(seconds, nanos)| Duration::new(seconds, nanos % 1_000_000_000)),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
}

fn policies() -> impl Strategy<Value = Retry> {
    let counts = prop_oneof![Just(None), (0..5_u32).prop_map(Some), Just(Some(u32::MAX))];
    (counts, durations(), durations(), any::<f64>(), any::<f64>(), prop::option::of(durations())).prop_map(
        |(max_attempts, min, max, backoff, jitter, within)| Retry { max_attempts, backoff, jitter, within, ..Retry::doubling(min, max) },
    )
}

fn moments() -> impl Strategy<Value = Timestamp> {
    prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), 0..4_000_000_000_000_000_i64].prop_map(Timestamp::from_micros)
}

#[test]
fn any_text_is_a_duration_that_reads_back_or_is_refused() {
    let texts = prop_oneof![almost_durations(), any::<String>()];
    try_all(30_000, texts, |text| {
        match duration::parse(&text) {
            Ok(read) => {
                prop_assert!(!read.is_zero() && i64::try_from(read.as_micros()).is_ok());
                prop_assert_eq!(duration::parse(&duration::display(read)), Ok(read));
            }
            Err(error) => prop_assert!(!error.to_string().contains('\0'), "{}", error),
        }
        Ok(())
    });
}

#[test]
fn any_duration_is_shown_and_whole_milliseconds_read_back() {
    try_all(30_000, durations(), |duration| {
        let shown = duration::display(duration);
        let ms = duration.as_millis();
        if ms > 0 && ms * 1_000 == duration.as_micros() && i64::try_from(duration.as_micros()).is_ok() {
            prop_assert_eq!(duration::parse(&shown), Ok(Duration::from_micros(duration.as_micros() as u64)));
        }
        Ok(())
    });
}

#[test]
fn no_policy_advice_moment_or_chance_overflows_a_retry() {
    let advice = prop_oneof![Just(RetryAdvice::Default), Just(RetryAdvice::Never), durations().prop_map(RetryAdvice::After)];
    try_all(5_000, (policies(), advice, moments(), moments(), any::<f64>(), policies()), |(policy, advice, first, failed, roll, other)| {
        let retry_state = RetryState::fresh(Some(policy.clone()), first);
        prop_assert!(retry_state.backoff <= policy.max);
        let under = retry_state.under(other.clone());
        prop_assert!(under.backoff <= other.max);
        if let Next::Again { wait, retry_state: next } = retry_state.after(advice, failed, roll) {
            prop_assert!(advice != RetryAdvice::Default || wait >= retry_state.backoff, "the wait is shorter than the backoff");
            prop_assert!(
                next.backoff >= retry_state.backoff.min(Duration::from_micros(u64::MAX)) || next.backoff == policy.max,
                "a wait shrinks"
            );
            prop_assert!(next.backoff <= policy.max);
            prop_assert!(failed + wait >= failed);
            prop_assert_eq!(next.remaining.map(|left| left + 1), retry_state.remaining);
        }
        Ok(())
    });
}

#[test]
fn a_million_attempts_of_one_call_saturate() {
    let endless = Retry::doubling(Duration::from_millis(1), Duration::MAX);
    let counted = endless.clone().retries_at_most(u32::MAX);
    for policy in [endless, counted, Retry { backoff: 1e300, jitter: 1e300, ..Retry::every(Duration::MAX) }] {
        let mut retry_state = RetryState::fresh(Some(policy), Timestamp::from_micros(i64::MAX - 1));
        let mut now = Timestamp::default();
        for attempt in 1..=1_000_000_u32 {
            let Next::Again { wait, retry_state: next } = retry_state.after(RetryAdvice::Default, now, 1.0) else {
                panic!("attempt {attempt} was the last")
            };
            assert!(next.backoff >= retry_state.backoff.min(Duration::from_micros(u64::MAX)) && now + wait >= now, "attempt {attempt}");
            let most = next.max_attempts(attempt + 1);
            assert!(most.is_none_or(|most| most >= attempt), "attempt {attempt} of {most:?}");
            (now, retry_state) = (now + wait, *next);
        }
        assert_eq!(now, Timestamp::MAX);
    }
}

#[test]
fn any_schedule_can_be_drawn() {
    try_all(1_000, (policies(), prop::option::of(durations())), |(policy, timer)| {
        let schedule = policy.schedule();
        let planned: Vec<_> = schedule.attempts().take(200).collect();
        prop_assert!(planned.windows(2).all(|pair| pair[0].at <= pair[1].at));
        schedule.warnings(timer).iter().for_each(|warning| drop(warning.to_string()));
        Ok(())
    });
}

#[test]
fn a_sound_policy_is_the_same_after_it_was_stored() {
    try_all(10_000, policies(), |policy| {
        let json = serde_json::to_string(&policy).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let read = serde_json::from_str::<Retry>(&json);
        if policy.defect().is_none() {
            let whole = |duration: Duration| i64::try_from(duration.as_micros()).is_ok() && duration.subsec_nanos().is_multiple_of(1_000);
            if [Some(policy.min), Some(policy.max), policy.within].into_iter().flatten().all(whole) {
                prop_assert_eq!(read.map_err(|error| TestCaseError::fail(error.to_string()))?, policy);
            } else {
                prop_assert!(read.is_ok(), "{} is not read back", json);
            }
        }
        Ok(())
    });
}

/// `serde_json` reads these with another last digit unless its feature `float_roundtrip` is on.
#[test]
fn a_policy_with_any_float_is_the_same_after_it_was_stored() {
    for backoff in [4.694_032_073_463_304_5e255, 1.000_000_000_000_000_2, f64::MAX, 1e23, 9.007_199_254_740_993e15] {
        let policy = Retry { backoff, jitter: 1.0 / backoff, ..Retry::every(Duration::from_secs(5)) };
        let json = serde_json::to_string(&policy).expect("a policy is JSON");
        assert_eq!(serde_json::from_str::<Retry>(&json).expect("it was written just now"), policy, "{json}");
    }
}

#[test]
fn any_moment_can_be_shown_and_counted_with() {
    try_all(30_000, (moments(), moments(), durations()), |(one, other, span)| {
        prop_assert!(!one.to_string().is_empty());
        prop_assert!(one + span >= one && one - span <= one);
        prop_assert!(one.since(other).is_zero() || other.since(one).is_zero());
        Ok(())
    });
}

#[test]
fn any_error_text_is_fit_to_be_stored() {
    let texts = prop_oneof![any::<String>(), (any::<char>(), 0..20_000_usize).prop_map(|(c, times)| c.to_string().repeat(times))];
    try_all(5_000, texts, |text| {
        let fit = fit(&text);
        prop_assert!(fit.len() <= 8 * 1024 && !fit.contains('\0'));
        prop_assert!(text.len() > 8 * 1024 || text.contains('\0') || fit == text);
        Ok(())
    });
}

#[test]
fn any_bytes_are_a_policy_or_a_machine_or_neither() {
    let json = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        "[\\[\\]{}:,\"a-z0-9.eE+-]{0,100}".prop_map(String::into_bytes),
        policies().prop_flat_map(|policy| {
            let json = serde_json::to_vec(&policy).unwrap_or_default();
            (Just(json), any::<(prop::sample::Index, u8)>()).prop_map(|(mut json, (at, byte))| {
                let at = at.index(json.len());
                json[at] = byte;
                json
            })
        }),
    ];
    try_all(20_000, json, |bytes| {
        if let Ok(policy) = serde_json::from_slice::<Retry>(&bytes) {
            let _ = RetryState::fresh(Some(policy), Timestamp::default()).after(RetryAdvice::Default, Timestamp::MAX, 1.0);
        }
        let _ = serde_json::from_slice::<Machine>(&bytes);
        Ok(())
    });
}

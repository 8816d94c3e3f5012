//! The decisions under a seeded scheduler: several processes around a model of the store, with faults between any two steps. Every
//! invariant is checked after every step. The answers that callers received are checked when nothing is left to do.
//!
//! A failure prints its seed and the shortest schedule that fails. `cargo xtask simulate` sets the number of schedules:
//! `FSM_SIMULATION_SEEDS=1000000` is the number, `FSM_SIMULATION_SECONDS=300` is a time limit. Without either, the simulation runs for 20
//! seconds. `FSM_SIMULATION_FIRST=77` sets the first seed.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod committer;
mod draw;
mod invariants;
mod lots;
mod machine;
#[path = "../model/model.rs"]
mod model;
mod process;
mod rest;
mod schedule;
mod step;
mod worker;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::variant::Variant;
use schedule::{Failure, run};

/// The time for which the correct engine runs if no number of seeds is given.
const USUAL: Duration = Duration::from_secs(20);
/// The number of schedules within which a mistake must be found.
const MOST: u64 = 100_000;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number of seeds, not {value:?}")))
}

#[test]
fn no_schedule_breaks_a_promise() {
    let (first, most) = (setting("FSM_SIMULATION_FIRST").unwrap_or(0), setting("FSM_SIMULATION_SEEDS"));
    let limit = match setting("FSM_SIMULATION_SECONDS") {
        Some(seconds) => Duration::from_secs(seconds),
        None => most.map_or(USUAL, |_| Duration::MAX),
    };
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let run_some = || {
        while begun.elapsed() < limit && failures.lock().unwrap().is_empty() {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if most.is_some_and(|most| n >= most) {
                return;
            }
            if let Err(failure) = run(Variant::True, first + n) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    std::thread::scope(|threads| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(threads.spawn(run_some)));
    });
    if let Some(failure) = failures.into_inner().unwrap().into_iter().min_by_key(|failure| failure.seed) {
        panic!("{}", failure.shrunk(Variant::True).told());
    }
    let ran = most.unwrap_or(u64::MAX).min(next.into_inner());
    let seconds = begun.elapsed().as_secs_f64();
    println!("{ran} schedules from seed {first} in {seconds:.1} s, {:.0} a second: no promise was broken", ran as f64 / seconds);
}

fn found(variant: Variant) -> Failure {
    let failure = (0..MOST).find_map(|seed| run(variant, seed).err());
    let failure = failure.unwrap_or_else(|| panic!("{variant:?} was not found within {MOST} schedules"));
    println!("{variant:?} was found by schedule {}", failure.seed + 1);
    let failure = failure.shrunk(variant);
    println!("{}", failure.told());
    failure
}

macro_rules! must_fail {
    ($($name:ident: $variant:ident, $why:literal;)*) => { $(
        #[test]
        fn $name() {
            let why = found(Variant::$variant).why;
            assert!(why.contains($why), "the mistake broke another promise than expected: {why}");
        }
    )* };
}

must_fail! {
    a_guard_without_session_is_found: GuardWithoutSession, "";
    a_late_report_by_id_only_is_found: LateReportById, "";
    rows_that_are_reused_are_found: RowsReused, "";
    reading_and_then_claiming_is_found: ReadThenClaim, "";
    a_retry_outside_the_transaction_is_found: RetryOutsideTheTransaction, "";
    a_sweep_without_grace_is_found: SweepWithoutGrace, "alive and well";
    a_sweep_on_a_lease_that_survived_is_found: SweepOnALeaseThatSurvived, "alive and well";
    a_sweep_without_looking_is_found: SweepWithoutLooking, "";
    strays_that_stay_are_found: StraysStay, "for ever";
    a_dedup_without_looking_is_found: DedupWithoutLooking, "";
    a_repeated_send_that_does_not_look_for_itself_is_found: RepeatWithoutLooking, "";
    a_timer_without_guard_is_found: TimerWithoutGuard, "";
    an_operator_without_guard_is_found: OperatorWithoutGuard, "";
    an_operator_without_id_is_found: OperatorWithoutId, "carried out twice";
    an_outlook_that_is_kept_is_found: OutlookKept, "foreseen";
    outgoing_events_apart_are_found: OutgoingApart, "";
    a_stamp_that_is_not_compared_is_found: StampNotCompared, "";
    a_stamp_that_is_compared_without_a_lock_is_found: StampWithoutLock, "";
    a_version_in_place_of_a_stamp_is_found: VersionForAStamp, "";
    a_stamp_that_is_read_later_is_found: StampReadLater, "";
    a_memory_that_is_kept_is_found: MemoryKept, "";
    a_memory_of_a_receiver_that_is_kept_is_found: MemoryOfAReceiverKept, "";
    an_epoch_that_is_not_compared_is_found: EpochNotCompared, "";
    an_epoch_that_is_read_later_is_found: EpochReadLater, "";
    a_memory_of_another_epoch_is_found: MemoryOfAnotherEpoch, "";
    half_of_a_batch_is_found: HalfOfABatch, "lost";
    a_memory_that_is_taken_early_is_found: MemoryTakenEarly, "";
    a_key_without_guard_is_found: KeyWithoutGuard, "of no instance";
}

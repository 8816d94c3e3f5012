//! The decisions under a seeded scheduler: several processes around a model of the store, with faults between any two steps. Every
//! invariant is checked after every step. The answers that callers received are checked when nothing is left to do.
//!
//! A failure prints its seed and the shortest schedule that fails. `cargo xtask simulate` sets the number of schedules:
//! `FSM_SIMULATION_SEEDS=1000000` is a number, `FSM_SIMULATION_SECONDS=300` is a time limit, and without either the same schedules run each
//! time. `FSM_SIMULATION_FIRST=77` begins with that seed, `FSM_FRESH_SEEDS=1` with a new one for each run.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
mod committer;
mod draw;
mod invariants;
mod machine;
#[path = "../model/model.rs"]
mod model;
mod partitions;
mod process;
mod random;
mod rest;
mod schedule;
mod step;
mod worker;
mod world;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::promise::Promise::{self, *};
use model::variant::Variant;
use partitions::pair::Pair;
use schedule::{Failure, Scheduled, run};
use world::World;

/// A quarter of the time was spent in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The number of schedules of the correct engine if neither a number nor a time is given.
const USUAL: u64 = 30_000;
/// Schedules of two partitions take longer: one is run for so many of the others.
const PAIRS: u64 = 15;
/// The number of schedules within which each mistake must be found. Otherwise the simulation would prove nothing.
const MOST: u64 = 100_000;

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number of seeds, not {value:?}")))
}

/// The first seed: the same for each run, unless `FSM_FRESH_SEEDS` asks for a new one.
fn first_seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() << 20);
    if std::env::var_os("FSM_FRESH_SEEDS").is_some() { fresh() } else { 0 }
}

#[test]
fn no_schedule_breaks_a_promise() {
    no_schedule_breaks::<World>(1);
}

#[test]
fn no_schedule_of_two_partitions_breaks_a_promise() {
    no_schedule_breaks::<Pair>(PAIRS);
}

/// Runs the schedules, or one in `of_how_many` of them.
fn no_schedule_breaks<W: Scheduled>(of_how_many: u64) {
    let (first, seconds) = (setting("FSM_SIMULATION_FIRST").unwrap_or_else(first_seed), setting("FSM_SIMULATION_SECONDS"));
    let most = setting("FSM_SIMULATION_SEEDS").or(if seconds.is_some() { None } else { Some(USUAL) });
    let most = most.map(|most| most / of_how_many);
    let limit = seconds.map_or(Duration::MAX, Duration::from_secs);
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let run_some = || {
        while begun.elapsed() < limit && failures.lock().unwrap().is_empty() {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if most.is_some_and(|most| n >= most) {
                return;
            }
            if let Err(failure) = run::<W>(Variant::True, first + n) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    on_all_cores(&run_some);
    if let Some(failure) = failures.into_inner().unwrap().into_iter().min_by_key(|failure| failure.seed) {
        panic!("{}", failure.shrunk(Variant::True).told());
    }
    let ran = most.unwrap_or(u64::MAX).min(next.into_inner());
    let seconds = begun.elapsed().as_secs_f64();
    println!("{ran} schedules from seed {first} in {seconds:.1} s, {:.0} a second: no promise was broken", ran as f64 / seconds);
}

fn on_all_cores(run: &(impl Fn() + Sync)) {
    std::thread::scope(|threads| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(threads.spawn(run)));
    });
}

/// Returns the failures of these schedules, in the order of their seeds.
fn failures<W: Scheduled>(variant: Variant, seeds: Range<u64>) -> Vec<Failure<W>> {
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    let run_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(failure) = run(variant, seed) {
                failures.lock().unwrap().push(failure);
            }
        }
    };
    on_all_cores(&run_some);
    let mut failures = failures.into_inner().unwrap();
    failures.sort_by_key(|failure| failure.seed);
    failures
}

/// Runs schedules until one of them breaks `promise`. Panics if that takes too many, or if one breaks a promise that is neither this one
/// nor one of `also`, because then the mistake was found for an unexpected reason.
fn found<W: Scheduled>(variant: Variant, promise: Promise, also: &[Promise]) {
    // Most mistakes are found by one of the first schedules.
    let blocks = [0..50, 50..500].into_iter().chain((500..MOST).step_by(1000).map(|first| first..first + 1000));
    for failure in blocks.flat_map(|block| failures::<W>(variant, block)) {
        let broken = failure.why.promise;
        if broken == promise {
            println!("{variant:?} was found by schedule {}", failure.seed + 1);
            println!("{}", failure.shrunk(variant).told());
            return;
        }
        assert!(also.contains(&broken), "{variant:?} breaks {promise:?}, and was found by another promise:\n{}", failure.told());
    }
    panic!("{variant:?} breaks {promise:?}, and none of {MOST} schedules shows it");
}

/// The further promises that a lost update can break: the order of the two writes decides which one.
const LOST_UPDATE: &[Promise] =
    &[I1, I4, I7, I13, DedupIdWrittenOnce, PlaceGivenOnce, OneLiveAttempt, FirstComeFirstServed, RefusedForAReason, EverythingComesToRest];

/// The further promises that break if a partition goes back to rows that it had before.
const LOST_IN_A_MOVE: &[Promise] =
    &[AcknowledgedIsKept, KeptBetweenPartitions, AttemptRunsOnce, NoRunWithoutAnInstance, OnlyTheHolderReports, NotReturnedOnceBegun];

macro_rules! must_fail {
    (of $world:ident: $($name:ident: $variant:ident breaks $promise:ident, also $also:expr;)*) => { $(
        #[test]
        fn $name() {
            found::<$world>(Variant::$variant, $promise, $also);
        }
    )* };
}

must_fail! {
    of World:
    a_guard_without_session_is_found: GuardWithoutSession breaks OnlyTheHolderReports, also &[NotReturnedOnceBegun];
    a_late_report_by_id_only_is_found:
        LateReportById breaks OnlyTheHolderReports, also &[I12, I15, AttemptEndsOnce, NotReturnedOnceBegun];
    rows_that_are_reused_are_found: RowsReused breaks AttemptRunsOnce, also &[OnlyTheHolderReports, SnoozeUsesNoRetry];
    reading_and_then_claiming_is_found: ReadThenClaim breaks AttemptRunsOnce, also &[I4, I11, OnlyTheHolderReports];
    a_retry_outside_the_transaction_is_found: RetryOutsideTheTransaction breaks I1, also &[];
    a_sweep_without_grace_is_found: SweepWithoutGrace breaks LiveWorkerKeepsItsWork, also &[];
    a_sweep_on_a_lease_that_survived_is_found: SweepOnALeaseThatSurvived breaks LiveWorkerKeepsItsWork, also &[];
    a_renewal_by_a_commit_without_grace_is_found: RenewedByACommitWithoutGrace breaks LiveWorkerKeepsItsWork, also &[];
    a_sweep_without_looking_is_found: SweepWithoutLooking breaks AttemptEndsOnce, also &[];
    attempts_held_but_not_running_are_found: HeldButNotRunningStays breaks EverythingComesToRest, also &[];
    a_dedup_without_looking_is_found: DedupWithoutLooking breaks DedupIdWrittenOnce, also &[];
    a_repeated_send_that_does_not_look_for_itself_is_found: RepeatWithoutLooking breaks TakenOnce,
        also &[WaitsInOnePlace, AttemptWrittenOnce, TimerWrittenOnce, RejectedNeverBegins];
    a_timer_without_guard_is_found:
        TimerWithoutGuard breaks TakenOnce, also &[WaitsInOnePlace, AttemptWrittenOnce, RejectedNeverBegins];
    an_operator_without_guard_is_found: OperatorWithoutGuard breaks NotEndedWhileItExecutes, also &[];
    an_operator_without_id_is_found: OperatorWithoutId breaks OperatedOnce, also &[];
    an_outlook_that_is_kept_is_found: OutlookKept breaks OutlookIsTrue, also &[];
    outgoing_events_apart_are_found: OutgoingApart breaks OnlySuccessSends, also &[];
    a_row_version_that_is_not_compared_is_found: RowVersionNotCompared breaks I1, also LOST_UPDATE;
    a_row_version_that_is_compared_without_a_lock_is_found: RowVersionWithoutLock breaks I1, also LOST_UPDATE;
    a_version_in_place_of_a_row_version_is_found: VersionForARowVersion breaks I13, also LOST_UPDATE;
    a_row_version_that_is_read_later_is_found: RowVersionReadLater breaks I13, also LOST_UPDATE;
    a_snapshot_that_is_kept_is_found: SnapshotKept breaks I1, also LOST_UPDATE;
    a_snapshot_of_a_receiver_that_is_kept_is_found: SnapshotOfAReceiverKept breaks PlaceGivenOnce, also LOST_UPDATE;
    a_file_version_that_is_not_compared_is_found: FileVersionNotCompared breaks RefusedForAReason, also LOST_UPDATE;
    a_file_version_that_is_read_later_is_found: FileVersionReadLater breaks RefusedForAReason, also LOST_UPDATE;
    a_snapshot_of_another_file_version_is_found: SnapshotOfAnotherFileVersion breaks PlaceGivenOnce, also LOST_UPDATE;
    a_stale_request_that_is_answered_is_found: StaleAnswered breaks AcknowledgedIsKept, also &[NotReturnedOnceBegun];
    a_stale_snapshot_that_is_used_again_is_found: StaleUsedAgain breaks I1, also LOST_UPDATE;
    an_attempt_that_is_not_appended_is_found: AttemptNotAppended breaks I9, also &[I6, AcknowledgedIsKept];
    a_log_apart_from_its_attempts_is_found: LogApart breaks I19, also &[];
    a_log_that_is_trimmed_too_early_is_found: LogTrimmedTooEarly breaks I19, also &[];
    a_snapshot_that_is_taken_early_is_found: SnapshotTakenEarly breaks I13, also LOST_UPDATE;
    a_full_inbox_that_drops_an_event_is_found: FullInboxDrops breaks NoneDroppedForLackOfRoom, also &[];
    an_outbox_that_delivers_twice_is_found: OutboxDeliversTwice breaks TakenOnce,
        also &[WaitsInOnePlace, AttemptWrittenOnce, RejectedNeverBegins, SentInOrder];
    an_outbox_out_of_order_is_found: OutboxOutOfOrder breaks SentInOrder, also &[];
    an_outbox_that_retries_for_ever_is_found: OutboxRetriesForEver breaks EverythingComesToRest, also &[];
    a_takeover_of_a_live_process_is_found: TakeoverByPidAlone breaks LiveWorkerKeepsItsWork, also &[];
    a_snooze_that_uses_a_retry_is_found: SnoozeUsesARetry breaks SnoozeUsesNoRetry, also &[];
    a_key_without_guard_is_found: KeyWithoutGuard breaks NoRunWithoutAnInstance,
        also &[I14, I16, AttemptWrittenOnce, EverythingComesToRest];
    an_interrupt_that_loses_against_the_success_of_the_attempt_is_found: InterruptLosesToSuccess breaks AcknowledgedIsKept, also &[];
    a_retry_in_spite_of_an_interrupt_is_found: InterruptWaits breaks InterruptDoesNotWait, also &[];
    an_internal_transition_that_moves_a_timer_is_found: StayMovesTheTimer breaks StayKeepsTheTimer, also &[];
}

must_fail! {
    of Pair:
    an_event_to_another_partition_without_a_dedup_id_is_found: PartitionEventDeliveredTwice breaks TakenOnce,
        also &[WaitsInOnePlace, AttemptWrittenOnce, RejectedNeverBegins];
    an_event_to_another_partition_that_overtakes_an_earlier_one_is_found: PartitionEventsOutOfOrder breaks SentInOrder, also &[];
    a_claim_of_the_first_event_of_a_line_only_is_found: PartitionClaimOfTheFirstOnly breaks CancelledIsNotDelivered, also &[RejectedNeverBegins];
    a_claim_that_is_finished_after_its_end_is_found: PartitionFinishWithoutClaim breaks RejectedNeverBegins, also &[];
    a_refusal_that_is_noted_later_is_found: PartitionRefusalNotedLater breaks SentInOrder, also &[RejectedNeverBegins];
    a_send_that_outlives_its_claim_is_found: PartitionSendOutlivesItsClaim breaks RejectedNeverBegins, also &[SentInOrder];
    an_event_that_is_lost_in_a_move_is_found: PartitionEventLostInAMove breaks KeptBetweenPartitions, also LOST_IN_A_MOVE;
    a_process_with_a_stale_directory_is_found: StaleDirectory breaks AcknowledgedIsKept, also LOST_IN_A_MOVE;
}

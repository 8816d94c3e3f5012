//! The same random walk on SQLite and on PostgreSQL gives the same answers, attempts, history and instances. The clock is held, and how
//! a verb ends stands in its event.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use fsm::prelude::*;
use fsm::testing::Bed;
use fsm::{Instance, Retry};
use serde::{Deserialize, Serialize};

const SEEDS: u64 = 30;
const ACTS: usize = 60;
const KEYS: usize = 2;

/// How the verb of an event ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Script {
    /// So many attempts fail,
    failures: u32,
    /// and say this of their retry.
    advice: u8,
    /// Then the verb asks for this event next.
    leads_on: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Begin(Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Go(Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Halt(Script);
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stop(Script);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Steps {
    attempts: Vec<u32>,
}

fn play(ctx: &mut Ctx<'_>, steps: &mut Steps, script: Script) -> Result {
    steps.attempts.push(ctx.attempt());
    if ctx.attempt() <= script.failures {
        return Err(match script.advice {
            0 => Failure::for_good(std::fmt::Error),
            1 => Failure::again_in(std::fmt::Error, Duration::from_secs(11)),
            _ => std::fmt::Error.into(),
        });
    }
    if script.leads_on {
        ctx.next(Go(Script { failures: script.failures.saturating_sub(1), advice: 2, leads_on: false }))?;
    }
    Ok(())
}

#[verb]
#[retry(2, "5s", "1m")]
async fn begun(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Begin) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
#[retry(1, "3s", catch = rescued)]
async fn gone(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Go) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
async fn halted(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Halt) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
async fn stopped(ctx: &mut Ctx<'_>, steps: &mut Steps, event: Stop) -> Result {
    play(ctx, steps, event.0)
}

#[verb]
async fn waited(steps: &mut Steps, _timeout: Timeout) -> Result {
    steps.attempts.push(0);
    Ok(())
}

/// Leads on where the script says so.
#[verb]
async fn rescued(ctx: &mut Ctx<'_>, caught: Caught<Go>) -> Result {
    if caught.event.0.leads_on {
        ctx.next(Go(Script { failures: 0, advice: 2, leads_on: false }))?;
    }
    Ok(())
}

fsm! {
    /// Walks about until it is stopped.
    machine Walk = "walk" {
        keeps Steps;
        start begun;
        begun -> gone | halted;
        gone -> gone | halted | stopped;
        gone after "40s" -> waited;
        waited -> gone | stopped;
        halted -> gone | stopped;
        end stopped;
    }
}

/// SplitMix64: a seed gives the same walk for ever.
struct Lots(u64);

impl Lots {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Send { key: u64, event: u64, script: Script, dedup: Option<u64>, after_s: Option<u64>, or_refuse: bool },
    Operate { key: u64, act: u64 },
    Advance { s: u64 },
}

fn draw(lots: &mut Lots) -> Act {
    let key = lots.below(KEYS as u64);
    match lots.below(10) {
        0..=4 => {
            let script =
                Script { failures: [0, 0, 0, 1, 2, 9][lots.below(6) as usize], advice: lots.below(6) as u8, leads_on: lots.below(4) == 0 };
            let dedup = (lots.below(4) == 0).then(|| lots.below(3));
            let after_s = (lots.below(6) == 0).then(|| lots.below(20));
            // One of an instance's life in so many ends it.
            let event = [0, 1, 1, 1, 1, 2, 2, 3][lots.below(8) as usize];
            Act::Send { key, event, script, dedup, after_s, or_refuse: lots.below(8) == 0 }
        }
        5..=7 => Act::Operate { key, act: lots.below(12) },
        _ => Act::Advance { s: [1, 3, 5, 20, 60][lots.below(5) as usize] },
    }
}

/// What an act answered, without ids that differ between databases.
async fn act(bed: &Bed, seed: u64, act: Act) -> String {
    let walks = bed.machine::<Walk>();
    let named = |key| format!("{seed}-{key}");
    let answer = match act {
        Act::Advance { s } => {
            bed.advance(Duration::from_secs(s)).await;
            "advanced".to_owned()
        }
        Act::Operate { key, act } => {
            let key = named(key);
            let operating = match act {
                0..=2 => walks.retry(&key),
                3 | 4 => walks.skip(&key),
                5 | 6 => walks.pause(&key).reason("wait"),
                7..=9 => walks.resume(&key),
                10 => walks.set_retry(&key, Retry::every(Duration::from_secs(2)).retries_at_most(3)).actor("ada"),
                _ => walks.cancel(&key, "enough"),
            };
            format!("{:?}", operating.await.map_err(|error| error.to_string()))
        }
        Act::Send { key, event, script, dedup, after_s, or_refuse } => {
            let key = named(key);
            let mut sending = match event {
                0 => walks.send(&key, Begin(script)),
                1 => walks.send(&key, Go(script)),
                2 => walks.send(&key, Halt(script)),
                _ => walks.send(&key, Stop(script)),
            };
            if let Some(id) = dedup {
                sending = sending.dedup(format!("d{id}"));
            }
            if let Some(s) = after_s {
                sending = sending.after(Duration::from_secs(s));
            }
            if or_refuse {
                sending = sending.or_refuse();
            }
            format!("{:?}", sending.await.map(|sent| sent.fate).map_err(|error| error.to_string()))
        }
    };
    bed.settle().await;
    answer
}

/// All that can be seen of the walk's instances. Calls are named by the order in which they are seen.
async fn seen(bed: &Bed, seed: u64) -> Vec<String> {
    let walks = bed.machine::<Walk>();
    let mut seen = Vec::new();
    for key in (0..KEYS).map(|key| format!("{seed}-{key}")) {
        let Some(instance) = walks.get(&key).await.unwrap() else { continue };
        let Instance { state, status, paused, record, version, created_at, updated_at, inbox_len, error, .. } = instance;
        seen.push(format!("{key} {state:?} {status} {paused} {record:?} {version} {created_at} {updated_at} {inbox_len} {error:?}"));
        let mut calls = Vec::new();
        for row in walks.attempts(&key).await.unwrap() {
            let call = calls.iter().position(|call| *call == row.call).unwrap_or_else(|| {
                calls.push(row.call);
                calls.len() - 1
            });
            seen.push(format!(
                "{key} call {call} attempt {} {} {} {:?} {} {} {} {:?} {:?} {:?} {:?} {:?}",
                row.number,
                row.verb,
                row.event,
                row.from,
                row.to,
                row.state,
                row.scheduled_at,
                row.started_at,
                row.finished_at,
                row.error,
                row.max_attempts,
                row.retries_left,
            ));
        }
        seen.extend(walks.history(&key).await.unwrap().iter().map(|entry| format!("{key} {entry}")));
    }
    seen
}

#[tokio::test]
async fn the_same_walk_gives_the_same_history_on_both_databases() {
    let sqlite = Bed::builder().only::<Walk>().sqlite().await;
    let postgres = Bed::builder().only::<Walk>().postgres().await;
    let mut lines = 0;
    for seed in 0..SEEDS {
        let mut lots = Lots(seed);
        let mut walked = Vec::new();
        for _ in 0..ACTS {
            let next = draw(&mut lots);
            let answers = (act(&sqlite, seed, next).await, act(&postgres, seed, next).await);
            walked.push(format!("{next:?} -> {}", answers.0));
            assert_eq!(answers.0, answers.1, "seed {seed} after\n{}", walked.join("\n"));
        }
        let (one, other) = (seen(&sqlite, seed).await, seen(&postgres, seed).await);
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one, other, "seed {seed} after\n{}", walked.join("\n"));
        }
        assert_eq!(one.len(), other.len(), "seed {seed}");
        lines += one.len();
    }
    for bed in [&sqlite, &postgres] {
        let violations = bed.violations().await;
        assert!(violations.is_empty(), "{violations:#?}");
    }
    println!("{SEEDS} walks of {ACTS} acts, {lines} lines alike");
}

//! The same random walk on SQLite, on PostgreSQL and on the model of the simulation. After each act, the answers, instances, attempts,
//! inboxes, timers and histories must be equal. The test moves the clock, and each event says how its verb ends.

mod imagined;
#[path = "../../fsm-core/tests/model/model.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod model;
#[allow(dead_code, reason = "the simulation uses all of it")]
#[path = "../../fsm-core/tests/simulation/random.rs"]
mod random;
mod real;
mod sight;
mod walk;

use imagined::Imagined;
use model::variant::Variant;
use random::Random;
use real::Real;
use walk::{Act, KEYS};

const SEEDS: u64 = 20;
const ACTS: usize = 60;

/// Walks with the seed on every database and on the model. Returns the number of compared lines, or the difference with the acts that led
/// to it.
async fn walk(seed: u64, reals: &[&Real], variant: Variant) -> Result<usize, String> {
    let mut imagined = Imagined::new(reals[0].machine(), variant, reals[0].bed.now());
    let (mut random, mut walked, mut lines) = (Random::new(seed), Vec::new(), 0);
    for _ in 0..ACTS {
        let act = Act::draw(&mut random);
        walked.push(format!("{act:?}"));
        let so_far = |what: String| format!("seed {seed}: {what}, after\n{}", walked.join("\n"));
        let expected = imagined.act(&act).map_err(|broken| so_far(format!("the model broke: {broken}")))?;
        let mut first = None;
        for real in reals {
            let answer = real.act(&act).await;
            if answer.clone().map_err(drop) != expected || first.get_or_insert(answer.clone()) != &answer {
                return Err(so_far(format!("{} says {answer:?}, not {expected:?} or {first:?}", real.bed.url())));
            }
            for key in 0..KEYS {
                let (seen, imagined) = (real.seen(key).await, imagined.seen(key));
                if seen != imagined {
                    let only =
                        |one: &[String], other: &[String]| one.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>();
                    let (here, there) = (only(&seen, &imagined), only(&imagined, &seen));
                    return Err(so_far(format!("{} alone has {here:#?}, and the model alone {there:#?}", real.bed.url())));
                }
                lines += seen.len();
            }
        }
    }
    Ok(lines)
}

#[tokio::test]
async fn the_same_walk_gives_the_same_history_on_both_databases_and_on_the_model() {
    let mut lines = 0;
    for seed in 0..SEEDS {
        let (sqlite, postgres) = (Real::sqlite().await, Real::postgres().await);
        lines += walk(seed, &[&sqlite, &postgres], Variant::True).await.unwrap_or_else(|difference| panic!("{difference}"));
    }
    println!("{SEEDS} walks of {ACTS} acts, {lines} lines alike");
}

/// Mistakes in the model must be detected, otherwise the comparison proves nothing.
#[tokio::test]
async fn a_model_with_a_mistake_walks_another_way() {
    for variant in [Variant::RowsReused, Variant::RetryOutsideTheTransaction, Variant::DedupWithoutLooking] {
        let (mut seed, mut found) = (0, None);
        while found.is_none() && seed < SEEDS {
            found = walk(seed, &[&Real::sqlite().await], variant).await.err();
            seed += 1;
        }
        println!("{variant:?}: {}", found.unwrap_or_else(|| panic!("{variant:?} walks the same way {SEEDS} times")));
    }
}

//! Priorities in a simulation: calls of all priorities become due in any order, and processes claim any number of them. Nothing that is claimed as
//! the engine does it breaks a promise. Each mistake that an engine could make breaks one.

use std::collections::VecDeque;

use fsm_core::priority::{Kept, Priority, kept};

use crate::random::Random;

const SEEDS: u64 = 40;
const CLAIMS: u64 = 4_000;
/// While the calls of a lower priority wait, so many starts may pass between two of them: one of eight places, and a claim on either side.
const MOST_PASSED: usize = 16;

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Keeps no places.
    ServesHighOnesOnly,
    /// Divides the places of each claim, and forgets the remainder. A claim of few places keeps none.
    ForgetsTheRemainder,
    /// Leaves a kept place empty if no call of that priority is due.
    WastesKeptPlaces,
    /// Claims by due time.
    ForgetsThePriority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// A call of a lower priority starts after a bounded number of others.
    NoneStarves,
    /// Of eight places, at most two go to others while high calls wait.
    HighOnesComeFirst,
    /// No place stays empty while a call is due.
    NoPlaceIsWasted,
}

struct World {
    engine: Engine,
    random: Random,
    now: u64,
    /// The times at which the waiting calls became due, by priority.
    due: [VecDeque<u64>; 3],
    claimed: u64,
    /// The starts since the last one of this priority, while one waits.
    passed: [usize; 3],
    /// The starts while a high call waited: all, and those of other calls.
    contended: (u64, u64),
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let random = Random::new(seed);
        World { engine, random, now: 0, due: Default::default(), claimed: 0, passed: [0; 3], contended: (0, 0) }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn run(mut self) -> Result<(), Promise> {
        let most = 1 + self.draw(6);
        for _ in 0..CLAIMS {
            self.now += 1;
            for priority in Priority::ALL {
                // High calls alone are more than there are places, most of the time.
                let below = if priority == Priority::High { 2 * most + 2 } else { 2 };
                for _ in 0..self.draw(below) {
                    self.due[priority as usize].push_back(self.now);
                }
            }
            let places = 1 + self.draw(most);
            self.claim(usize::try_from(places).unwrap_or(1))?;
        }
        let (all, others) = self.contended;
        if all > 800 && others > all / 4 + 8 { Err(Promise::HighOnesComeFirst) } else { Ok(()) }
    }

    fn claim(&mut self, places: usize) -> Result<(), Promise> {
        let most = u32::try_from(places).unwrap_or(u32::MAX);
        let kept = match self.engine {
            Engine::ServesHighOnesOnly => Kept::default(),
            Engine::ForgetsTheRemainder => Kept { normal: most / 8, low: most / 8 },
            _ => kept(self.claimed, most),
        };
        let waiting: usize = self.due.iter().map(VecDeque::len).sum();
        let order = self.order(places, kept);
        if order.len() < places.min(waiting) {
            return Err(Promise::NoPlaceIsWasted);
        }
        for priority in order {
            self.start(priority)?;
        }
        Ok(())
    }

    /// The priorities of the calls that a claim of so many places gets: the kept places, then by priority.
    fn order(&self, places: usize, kept: Kept) -> Vec<Priority> {
        let mut left = self.due.each_ref().map(VecDeque::len);
        let mut order = Vec::with_capacity(places);
        let mut take = |priority: Priority, most: usize, order: &mut Vec<Priority>| {
            let count = most.min(left[priority as usize]).min(places - order.len());
            left[priority as usize] -= count;
            order.extend(std::iter::repeat_n(priority, count));
        };
        if self.engine == Engine::ForgetsThePriority {
            let mut all: Vec<_> = Priority::ALL.into_iter().flat_map(|of| self.due[of as usize].iter().map(move |at| (*at, of))).collect();
            all.sort_by_key(|(at, _)| *at);
            return all.into_iter().take(places).map(|(_, priority)| priority).collect();
        }
        take(Priority::Normal, kept.normal as usize, &mut order);
        take(Priority::Low, kept.low as usize, &mut order);
        let wasted = (kept.normal + kept.low) as usize - order.len();
        let left_over = if self.engine == Engine::WastesKeptPlaces { places - wasted.min(places) } else { places };
        for priority in Priority::ALL {
            take(priority, left_over.saturating_sub(order.len()), &mut order);
        }
        order
    }

    fn start(&mut self, started: Priority) -> Result<(), Promise> {
        self.claimed += 1;
        if !self.due[Priority::High as usize].is_empty() {
            self.contended.0 += 1;
            self.contended.1 += u64::from(started != Priority::High);
        }
        self.due[started as usize].pop_front();
        for priority in Priority::ALL {
            let waits = priority != started && !self.due[priority as usize].is_empty();
            self.passed[priority as usize] = if waits { self.passed[priority as usize] + 1 } else { 0 };
        }
        if self.passed.iter().any(|passed| *passed > MOST_PASSED) { Err(Promise::NoneStarves) } else { Ok(()) }
    }
}

fn broken(engine: Engine) -> Vec<Promise> {
    (0..SEEDS).filter_map(|seed| World::new(engine, seed).run().err()).collect()
}

#[test]
fn high_calls_come_first_and_no_other_starves() {
    assert_eq!(broken(Engine::Ours), []);
}

#[test]
fn serving_only_high_calls_is_found() {
    assert!(broken(Engine::ServesHighOnesOnly).contains(&Promise::NoneStarves));
}

#[test]
fn forgetting_the_remainder_of_a_division_is_found() {
    assert!(broken(Engine::ForgetsTheRemainder).contains(&Promise::NoneStarves));
}

#[test]
fn wasting_a_kept_place_is_found() {
    assert!(broken(Engine::WastesKeptPlaces).contains(&Promise::NoPlaceIsWasted));
}

#[test]
fn forgetting_the_priority_is_found() {
    let broken = broken(Engine::ForgetsThePriority);
    assert!(broken.contains(&Promise::HighOnesComeFirst) || broken.contains(&Promise::NoneStarves), "{broken:?}");
}

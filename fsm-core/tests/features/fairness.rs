//! Fair shares in a simulation: calls of many values become due in any order and run for any time, and a process claims as many as it has free
//! slots. Nothing that is claimed as the engine does it breaks a promise. Each mistake that an engine could make breaks one.

use std::collections::{HashMap, VecDeque};

use fsm_core::fair::{DueCall, Group, choose};
use fsm_core::ids::InstanceId;
use fsm_core::priority::{Kept, Priority, kept};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::random::Random;

const SEEDS: u64 = 40;
const STEPS: u64 = 3_000;
const SLOTS: usize = 8;
/// The number of values of which a claim reads the first calls. More take turns.
const VALUES: usize = 4;
/// The number of calls of each value that a claim reads.
const CALLS: usize = 8;
/// While a value waits and runs less than another, so many calls of others may start: a turn through all values, each time with all slots.
const MOST_PASSED: usize = 3 * SLOTS;

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Reads the calls that have been due for longest, whatever their values.
    ReadsTheFirstCalls,
    /// Does not count the attempts that run already.
    ForgetsWhatRuns,
    /// Does not count the places that a value got in the same claim.
    ForgetsItsOwnChoices,
    /// Always reads the first values.
    TakesNoTurns,
    /// Reads the values behind those of the last claim, also if these are fewer than it can read.
    ForgetsTheFirstValues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// A value that runs less than others starts after a bounded number of their calls.
    NoneStarves,
    /// No value gets a place while another one, which a claim can read, waits and has fewer.
    NoneGetsMoreThanItsShare,
    /// No slot stays free while a call is due.
    NoPlaceIsWasted,
}

struct World {
    engine: Engine,
    random: Random,
    now: u64,
    /// The waiting calls of each value, with the times at which they became due.
    due: Vec<VecDeque<(InstanceId, u64)>>,
    /// The attempts that run: the value, and the time of the end.
    running: Vec<(usize, u64)>,
    /// The starts of others while a value waited and ran less.
    passed: Vec<usize>,
    first_value: usize,
    calls: u128,
    claimed: u64,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let mut world = World {
            engine,
            random: Random::new(seed),
            now: 0,
            due: Vec::new(),
            running: Vec::new(),
            passed: Vec::new(),
            first_value: 0,
            calls: 0,
            claimed: 0,
        };
        let values = 2 + world.draw(6) as usize;
        world.due = vec![VecDeque::new(); values];
        world.passed = vec![0; values];
        world
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn run(mut self) -> Result<(), Promise> {
        for _ in 0..STEPS {
            self.now += 1;
            for value in 0..self.due.len() {
                // The second value floods. The others send now and then, and many at once.
                let count = match value {
                    1 => 3,
                    _ if self.draw(24) == 0 => self.draw(8),
                    _ => 0,
                };
                for _ in 0..count {
                    self.calls += 1;
                    self.due[value].push_back((InstanceId(Uuid::from_u128(self.calls)), self.now));
                }
            }
            self.due[1].truncate(500);
            self.running.retain(|(_, until)| *until > self.now);
            self.claim()?;
        }
        Ok(())
    }

    /// The values of which this claim reads the first calls.
    fn read(&mut self) -> Vec<usize> {
        let waiting = |from: usize, until: usize| (from..until).filter(|value| !self.due[*value].is_empty()).collect::<Vec<_>>();
        let from = if self.engine == Engine::TakesNoTurns { 0 } else { self.first_value };
        let mut values = waiting(from, self.due.len());
        if self.engine != Engine::ForgetsTheFirstValues || values.is_empty() {
            values.extend(waiting(0, from));
        }
        values.truncate(VALUES);
        self.first_value = values.last().filter(|_| values.len() == VALUES).copied().unwrap_or_default();
        values
    }

    fn claim(&mut self) -> Result<(), Promise> {
        let places = SLOTS - self.running.len();
        let waiting = self.due.iter().filter(|calls| !calls.is_empty()).count();
        let due = self.due.iter().map(VecDeque::len).sum::<usize>();
        let values = self.read();
        let groups: Vec<Group> = values.iter().map(|value| self.group(*value)).collect();
        let most = u32::try_from(places).unwrap_or(u32::MAX);
        let kept = kept(self.claimed, most);
        let chosen = match self.engine {
            Engine::ReadsTheFirstCalls => self.by_time(places),
            Engine::ForgetsItsOwnChoices => self.one_by_one(&groups, most),
            _ => choose(groups, most, kept),
        };
        if chosen.len() < places.min(due) && waiting <= VALUES {
            return Err(Promise::NoPlaceIsWasted);
        }
        chosen.into_iter().try_for_each(|instance| self.start(instance, waiting <= VALUES))
    }

    fn group(&self, value: usize) -> Group {
        let running = if self.engine == Engine::ForgetsWhatRuns { 0 } else { self.runs(value) };
        let call = |(instance, due_at): &(InstanceId, u64)| DueCall {
            instance: *instance,
            priority: Priority::Normal,
            due_at: Timestamp::from_micros(i64::try_from(*due_at).unwrap_or(i64::MAX)),
        };
        Group { running, due: self.due[value].iter().take(CALLS).map(call).collect() }
    }

    fn runs(&self, value: usize) -> usize {
        self.running.iter().filter(|(of, _)| *of == value).count()
    }

    fn by_time(&self, places: usize) -> Vec<InstanceId> {
        let mut all: Vec<_> = self.due.iter().flatten().map(|(instance, at)| (*at, *instance)).collect();
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().take(places).map(|(_, instance)| instance).collect()
    }

    /// Chooses each place as if it were the only one.
    fn one_by_one(&self, groups: &[Group], places: u32) -> Vec<InstanceId> {
        let mut groups = groups.to_vec();
        let mut chosen = Vec::new();
        for _ in 0..places {
            let Some(next) = choose(groups.clone(), 1, Kept::default()).first().copied() else { break };
            groups.iter_mut().for_each(|group| group.due.retain(|call| call.instance != next));
            chosen.push(next);
        }
        chosen
    }

    fn start(&mut self, instance: InstanceId, reads_all: bool) -> Result<(), Promise> {
        let runs: HashMap<usize, usize> = (0..self.due.len()).map(|value| (value, self.runs(value))).collect();
        let value = self.due.iter().position(|calls| calls.iter().any(|(of, _)| *of == instance)).unwrap_or_default();
        let has_fewer = |other: usize| other != value && !self.due[other].is_empty() && runs[&other] < runs[&value];
        if reads_all && (0..self.due.len()).any(has_fewer) {
            return Err(Promise::NoneGetsMoreThanItsShare);
        }
        for other in (0..self.due.len()).filter(|other| has_fewer(*other)) {
            self.passed[other] += 1;
        }
        self.passed[value] = 0;
        if self.passed.iter().any(|passed| *passed > MOST_PASSED) {
            return Err(Promise::NoneStarves);
        }
        self.due[value].retain(|(of, _)| *of != instance);
        self.claimed += 1;
        let until = self.now + 1 + self.draw(12);
        self.running.push((value, until));
        Ok(())
    }
}

fn broken(engine: Engine) -> Vec<Promise> {
    (0..SEEDS).filter_map(|seed| World::new(engine, seed).run().err()).collect()
}

#[test]
fn the_values_share_the_slots_and_none_starves() {
    assert_eq!(broken(Engine::Ours), []);
}

#[test]
fn a_flood_that_hides_other_values_is_found() {
    assert!(broken(Engine::ReadsTheFirstCalls).contains(&Promise::NoneGetsMoreThanItsShare));
}

#[test]
fn a_value_that_keeps_its_places_and_gets_more_is_found() {
    assert!(broken(Engine::ForgetsWhatRuns).contains(&Promise::NoneGetsMoreThanItsShare));
}

#[test]
fn a_value_that_gets_all_places_of_a_claim_is_found() {
    assert!(broken(Engine::ForgetsItsOwnChoices).contains(&Promise::NoneGetsMoreThanItsShare));
}

#[test]
fn a_value_that_is_never_read_starves_and_is_found() {
    assert!(broken(Engine::TakesNoTurns).contains(&Promise::NoneStarves));
}

#[test]
fn values_that_are_alone_at_the_end_of_a_turn_are_found() {
    assert!(broken(Engine::ForgetsTheFirstValues).iter().any(|promise| *promise != Promise::NoneStarves));
}

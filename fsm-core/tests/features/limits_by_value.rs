//! Limits by value in a simulation: processes claim, run, stop and die in any order. Each value of a search field has the limit for itself.
//! Each mistake that an engine could make breaks a promise.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::fair::DueCall;
use fsm_core::ids::InstanceId;
use fsm_core::limit::{Group, Limit, Rate, Use, admit};
use fsm_core::priority::{Kept, Priority};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::random::Random;

const SEEDS: u64 = 60;
const CALLS: usize = 60;
const VALUES: usize = 4;
/// The calls of this value never end by themselves, so that the value stays at its limit.
const STUCK: usize = 0;
const PROCESSES: usize = 3;
const SLOTS: u32 = 8;
const LEASE_US: i64 = 3_000_000;
const SECOND: i64 = 1_000_000;

const LIMIT: Limit = Limit { concurrency: Some(2), rate: Some(Rate { starts: 10, per: Duration::from_secs(1), burst: 1 }), by: None };

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Counts what runs of a value before it has the lock of the limit.
    CountsBeforeItLocks,
    /// Keeps a counter for each value, which each process decrements when a call ends.
    CountsInARow,
    /// Takes a process that is silent for dead, before its lease has expired.
    SweepsBeforeTheLeaseEnds,
    /// Deletes the row of a value while its next start is not yet due by the rate.
    ForgetsValuesTooEarly,
    /// Reads the first calls of the limit, whatever their values.
    ReadsTheFirstCalls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// No more calls of a value run in live processes than the limit says.
    Concurrency,
    /// No more calls of a value start in a second than the rate and one.
    Rate,
    /// Each call of a value that is not stuck ends: no place is lost, and a value at its limit hides no other.
    EveryCallEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Runs { session: usize },
    Ended,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    value: usize,
    state: State,
}

#[derive(Debug, Clone)]
struct Process {
    session: usize,
    lease_until: i64,
    is_silent: bool,
    has_lock: bool,
    /// The number that it counted for each value.
    counted: Option<Vec<u32>>,
}

struct World {
    engine: Engine,
    random: Random,
    now: i64,
    calls: Vec<Call>,
    processes: Vec<Process>,
    /// The sessions of processes that are gone, each with the end of its lease.
    dead: Vec<(usize, i64)>,
    counters: [u32; VALUES],
    next_at: HashMap<usize, Timestamp>,
    starts: Vec<(usize, i64)>,
    /// The verbs as the processes run them: a call that others take for lost goes on where it runs.
    verbs: Vec<(usize, usize)>,
    sessions: usize,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let mut world = World {
            engine,
            random: Random::new(seed),
            now: 0,
            // The calls of the value that is stuck are due first.
            calls: (0..CALLS).map(|n| Call { value: n * VALUES / CALLS, state: State::Waits }).collect(),
            processes: Vec::new(),
            dead: Vec::new(),
            counters: [0; VALUES],
            next_at: HashMap::new(),
            starts: Vec::new(),
            verbs: Vec::new(),
            sessions: 0,
        };
        for _ in 0..PROCESSES {
            let process = world.process();
            world.processes.push(process);
        }
        world
    }

    fn process(&mut self) -> Process {
        self.sessions += 1;
        Process { session: self.sessions, lease_until: self.now + LEASE_US, is_silent: false, has_lock: false, counted: None }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn count(&self) -> Vec<u32> {
        let running =
            |value| self.calls.iter().filter(|call| call.value == value && matches!(call.state, State::Runs { .. })).count() as u32;
        match self.engine {
            Engine::CountsInARow => self.counters.to_vec(),
            _ => (0..VALUES).map(running).collect(),
        }
    }

    /// One statement of one process, or an accident.
    fn step(&mut self, has_accidents: bool) {
        self.now += 1_000 + self.draw(4_000) as i64;
        for process in self.processes.iter_mut().filter(|process| !process.is_silent) {
            process.lease_until = self.now + LEASE_US;
        }
        let p = self.draw(PROCESSES as u64) as usize;
        match self.draw(if has_accidents { 40 } else { 36 }) {
            0..30 => self.claim(p),
            30..33 => self.end(p),
            33..36 => self.sweep(),
            36 => self.die(p),
            37 => self.processes[p].is_silent = true,
            _ => self.processes[p].is_silent = false,
        }
        for p in 0..PROCESSES {
            if self.processes[p].lease_until <= self.now {
                self.die(p);
            }
        }
    }

    /// The next statement of a claim: the lock, the count, and the write with the commit.
    fn claim(&mut self, p: usize) {
        let is_locked = self.processes.iter().any(|process| process.has_lock);
        let counts_early = self.engine == Engine::CountsBeforeItLocks && !self.processes[p].has_lock;
        if self.processes[p].counted.is_none() && (counts_early || self.processes[p].has_lock) {
            self.processes[p].counted = Some(self.count());
        } else if !self.processes[p].has_lock {
            self.processes[p].has_lock = !is_locked;
        } else if let Some(counted) = self.processes[p].counted.take() {
            self.start(self.processes[p].session, &counted);
            self.processes[p].has_lock = false;
        }
    }

    fn start(&mut self, session: usize, counted: &[u32]) {
        let now = Timestamp::from_micros(self.now);
        let used = |value: usize| Use { running: counted[value], next_at: self.next_at.get(&value).copied().unwrap_or(now) };
        let mut groups: Vec<Group> =
            (0..VALUES).map(|value| Group { starts: LIMIT.room(used(value), now).starts, due: Vec::new() }).collect();
        let read = if self.engine == Engine::ReadsTheFirstCalls { SLOTS as usize } else { CALLS };
        let waiting = self.calls.iter().enumerate().filter(|(_, call)| call.state == State::Waits).take(read);
        for (n, call) in waiting {
            let due = DueCall {
                instance: InstanceId(Uuid::from_u128(n as u128)),
                priority: Priority::Normal,
                due_at: Timestamp::from_micros(n as i64),
            };
            groups[call.value].due.push(due);
        }
        for (value, instance) in admit(&groups, SLOTS, Kept::default()) {
            let n = instance.0.as_u128() as usize;
            self.next_at.insert(value, LIMIT.after(used_next(&self.next_at, value, now), 1, now));
            self.calls[n].state = State::Runs { session };
            self.counters[value] += 1;
            self.starts.push((value, self.now));
            self.verbs.push((n, session));
        }
        let early = if self.engine == Engine::ForgetsValuesTooEarly { SECOND } else { 0 };
        self.next_at.retain(|_, next| next.as_micros() >= self.now + early);
    }

    /// The end of a call, which its process reports.
    fn end(&mut self, p: usize) {
        let session = self.processes[p].session;
        let runs = |call: &Call| call.value != STUCK && call.state == State::Runs { session };
        if let Some(n) = self.calls.iter().position(runs) {
            self.calls[n].state = State::Ended;
            let counter = &mut self.counters[self.calls[n].value];
            *counter = counter.saturating_sub(1);
            self.verbs.retain(|verb| *verb != (n, session));
        }
    }

    /// A process is gone, and another one takes its place. Its transaction is rolled back, and its calls stay as they are.
    fn die(&mut self, p: usize) {
        let Process { session, lease_until, .. } = self.processes[p];
        self.dead.push((session, lease_until));
        self.verbs.retain(|(_, of)| *of != session);
        self.processes[p] = self.process();
    }

    /// The calls of dead processes are lost, and wait again.
    fn sweep(&mut self) {
        let mut lost: Vec<usize> = self.dead.iter().filter(|(_, until)| *until <= self.now).map(|(session, _)| *session).collect();
        if self.engine == Engine::SweepsBeforeTheLeaseEnds {
            lost.extend(self.processes.iter().filter(|process| process.is_silent).map(|process| process.session));
        }
        for call in &mut self.calls {
            if matches!(call.state, State::Runs { session } if lost.contains(&session)) {
                call.state = State::Waits;
            }
        }
    }

    fn exceeds(&self) -> bool {
        let runs = |value| self.verbs.iter().filter(|(call, _)| self.calls[*call].value == value).count() as u32;
        (0..VALUES).any(|value| LIMIT.concurrency.is_some_and(|most| runs(value) > most))
    }

    fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.value == STUCK || call.state == State::Ended)
    }
}

fn used_next(next_at: &HashMap<usize, Timestamp>, value: usize, now: Timestamp) -> Timestamp {
    next_at.get(&value).copied().unwrap_or(now)
}

/// Runs one seed. Returns the promise that is broken.
fn broken(engine: Engine, seed: u64) -> Option<Promise> {
    let mut world = World::new(engine, seed);
    for n in 0..10_000 {
        world.step(n < 2_000);
        if world.exceeds() {
            return Some(Promise::Concurrency);
        }
        if world.is_done() {
            break;
        }
    }
    for value in 0..VALUES {
        let starts: Vec<i64> = world.starts.iter().filter(|(of, _)| *of == value).map(|(_, at)| *at).collect();
        let within = |first: usize| starts[first..].iter().take_while(|start| **start - starts[first] < SECOND).count();
        if (0..starts.len()).any(|first| within(first) > 11) {
            return Some(Promise::Rate);
        }
    }
    (!world.is_done()).then_some(Promise::EveryCallEnds)
}

fn all_broken(engine: Engine) -> Vec<Promise> {
    crate::all_broken(SEEDS, |seed| broken(engine, seed))
}

#[test]
fn no_process_that_dies_or_falls_silent_breaks_the_limit_of_a_value() {
    assert_eq!(all_broken(Engine::Ours), []);
}

#[test]
fn a_count_of_a_value_before_the_lock_is_found() {
    assert!(all_broken(Engine::CountsBeforeItLocks).contains(&Promise::Concurrency));
}

#[test]
fn a_place_of_a_value_that_a_crash_leaks_is_found() {
    assert_eq!(all_broken(Engine::CountsInARow), [Promise::EveryCallEnds]);
}

#[test]
fn the_limit_of_a_value_exceeded_after_a_process_was_taken_for_dead_is_found() {
    assert!(all_broken(Engine::SweepsBeforeTheLeaseEnds).contains(&Promise::Concurrency));
}

#[test]
fn a_value_whose_rate_is_forgotten_too_early_is_found() {
    assert!(all_broken(Engine::ForgetsValuesTooEarly).contains(&Promise::Rate));
}

#[test]
fn a_value_that_hides_the_calls_of_another_is_found() {
    assert_eq!(all_broken(Engine::ReadsTheFirstCalls), [Promise::EveryCallEnds]);
}

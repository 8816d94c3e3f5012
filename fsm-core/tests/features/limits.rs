//! Limits in a simulation: processes claim, run, stop and die in any order, one statement at a time. Nothing that is claimed as the engine does
//! it breaks a promise. Each mistake that an engine could make breaks one.

use std::time::Duration;

use fsm_core::limit::{Limit, Rate, Use};
use fsm_core::time::Timestamp;

use crate::random::Random;

const SEEDS: u64 = 60;
const CALLS: usize = 60;
const PROCESSES: usize = 3;
const LEASE_US: i64 = 3_000_000;
const SECOND: i64 = 1_000_000;

const LIMIT: Limit = Limit { concurrency: Some(4), rate: Some(Rate { starts: 20, per: Duration::from_secs(1), burst: 1 }), by: None };

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// Counts what runs before it has the lock of the limit.
    CountsBeforeItLocks,
    /// Keeps a counter in the row of the limit, which each process decrements when a call ends.
    CountsInTheRow,
    /// Takes a process that is silent for dead, before its lease has expired.
    SweepsBeforeTheLeaseEnds,
    /// Keeps the time of the next start in the memory of each process.
    RemembersTheRateInEachProcess,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// No more calls run in live processes than the limit says.
    Concurrency,
    /// No more calls start in a second than the rate and one.
    Rate,
    /// Each call ends at some time: no place under the limit is lost.
    EveryCallEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Waits,
    Runs { session: usize },
    Ended,
}

/// A process on its way through a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    None,
    Locked { counted: Option<u32> },
}

#[derive(Debug, Clone)]
struct Process {
    session: usize,
    lease_until: i64,
    is_silent: bool,
    claim: Claim,
    counted_early: Option<u32>,
    next_at: Timestamp,
}

struct World {
    engine: Engine,
    random: Random,
    now: i64,
    calls: Vec<Call>,
    processes: Vec<Process>,
    /// The sessions of processes that are gone, each with the end of its lease.
    dead: Vec<(usize, i64)>,
    locked_by: Option<usize>,
    counter: u32,
    next_at: Timestamp,
    starts: Vec<i64>,
    sessions: usize,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let mut world = World {
            engine,
            random: Random::new(seed),
            now: 0,
            calls: vec![Call::Waits; CALLS],
            processes: Vec::new(),
            dead: Vec::new(),
            locked_by: None,
            counter: 0,
            next_at: Timestamp::from_micros(0),
            starts: Vec::new(),
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
        Process {
            session: self.sessions,
            lease_until: self.now + LEASE_US,
            is_silent: false,
            claim: Claim::None,
            counted_early: None,
            next_at: Timestamp::from_micros(0),
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn running(&self) -> u32 {
        match self.engine {
            Engine::CountsInTheRow => self.counter,
            _ => self.calls.iter().filter(|call| matches!(call, Call::Runs { .. })).count() as u32,
        }
    }

    /// One statement of one process, or an accident.
    fn step(&mut self, has_accidents: bool) {
        self.now += 1_000 + self.draw(4_000) as i64;
        for process in &mut self.processes {
            if !process.is_silent {
                process.lease_until = self.now + LEASE_US;
            }
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
        // A process stops its verbs when its lease has expired.
        let now = self.now;
        for p in 0..PROCESSES {
            if self.processes[p].lease_until <= now {
                self.die(p);
            }
        }
    }

    /// The next statement of a claim: the lock, the count, and the write with the commit.
    fn claim(&mut self, p: usize) {
        let (now, running) = (Timestamp::from_micros(self.now), self.running());
        match self.processes[p].claim {
            Claim::None => {
                if self.engine == Engine::CountsBeforeItLocks && self.processes[p].counted_early.is_none() {
                    self.processes[p].counted_early = Some(running);
                } else if self.locked_by.is_none() {
                    self.locked_by = Some(p);
                    self.processes[p].claim = Claim::Locked { counted: self.processes[p].counted_early.take() };
                }
            }
            Claim::Locked { counted: None } => self.processes[p].claim = Claim::Locked { counted: Some(running) },
            Claim::Locked { counted: Some(running) } => {
                let in_memory = self.engine == Engine::RemembersTheRateInEachProcess;
                let next_at = if in_memory { self.processes[p].next_at } else { self.next_at };
                let room = LIMIT.room(Use { running, next_at }, now).starts;
                let session = self.processes[p].session;
                let waiting = self.calls.iter_mut().filter(|call| **call == Call::Waits);
                let mut started = 0;
                for call in waiting.take(room as usize) {
                    *call = Call::Runs { session };
                    started += 1;
                }
                self.counter += started;
                self.starts.extend((0..started).map(|_| self.now));
                let after = LIMIT.after(next_at, started, now);
                if in_memory {
                    self.processes[p].next_at = after
                } else {
                    self.next_at = after
                }
                self.processes[p].claim = Claim::None;
                self.locked_by = None;
            }
        }
    }

    /// The end of a call, which its process reports.
    fn end(&mut self, p: usize) {
        let session = self.processes[p].session;
        if let Some(call) = self.calls.iter_mut().find(|call| **call == Call::Runs { session }) {
            *call = Call::Ended;
            self.counter = self.counter.saturating_sub(1);
        }
    }

    /// A process is gone, and another one takes its place. Its transaction is rolled back, and its calls stay as they are.
    fn die(&mut self, p: usize) {
        if self.locked_by == Some(p) {
            self.locked_by = None;
        }
        let Process { session, lease_until, .. } = self.processes[p];
        self.dead.push((session, lease_until));
        self.processes[p] = self.process();
    }

    /// The calls of dead processes are lost, and wait again.
    fn sweep(&mut self) {
        let mut lost: Vec<usize> = self.dead.iter().filter(|(_, until)| *until <= self.now).map(|(session, _)| *session).collect();
        if self.engine == Engine::SweepsBeforeTheLeaseEnds {
            lost.extend(self.processes.iter().filter(|process| process.is_silent).map(|process| process.session));
        }
        for call in &mut self.calls {
            if matches!(call, Call::Runs { session } if lost.contains(session)) {
                *call = Call::Waits;
            }
        }
    }

    /// The verbs that run in live processes, whatever the rows say.
    fn runs(&self, verbs: &[(usize, usize)]) -> u32 {
        verbs.iter().filter(|(_, session)| self.processes.iter().any(|process| process.session == *session)).count() as u32
    }
}

/// Runs one seed. Returns the promise that is broken.
fn broken(engine: Engine, seed: u64) -> Option<Promise> {
    let mut world = World::new(engine, seed);
    // The verbs as the processes run them: a call that others take for lost goes on where it runs.
    let mut verbs: Vec<(usize, usize)> = Vec::new();
    for n in 0..10_000 {
        let before = world.calls.clone();
        world.step(n < 2_000);
        for (call, (was, is)) in before.iter().zip(&world.calls).enumerate() {
            match (was, is) {
                (Call::Waits, Call::Runs { session }) => verbs.push((call, *session)),
                (Call::Runs { session }, Call::Ended) => verbs.retain(|verb| *verb != (call, *session)),
                _ => {}
            }
        }
        verbs.retain(|(_, session)| world.processes.iter().any(|process| process.session == *session));
        if world.runs(&verbs) > LIMIT.concurrency.unwrap_or(u32::MAX) {
            return Some(Promise::Concurrency);
        }
        if world.calls.iter().all(|call| *call == Call::Ended) {
            break;
        }
    }
    let starts = &world.starts;
    let within = |first: usize| starts[first..].iter().take_while(|start| **start - starts[first] < SECOND).count();
    if (0..starts.len()).any(|first| within(first) > 21) {
        return Some(Promise::Rate);
    }
    world.calls.iter().any(|call| *call != Call::Ended).then_some(Promise::EveryCallEnds)
}

fn all_broken(engine: Engine) -> Vec<Promise> {
    crate::all_broken(SEEDS, |seed| broken(engine, seed))
}

#[test]
fn no_process_that_dies_or_falls_silent_breaks_a_limit() {
    assert_eq!(all_broken(Engine::Ours), []);
}

#[test]
fn a_count_before_the_lock_is_found() {
    assert!(all_broken(Engine::CountsBeforeItLocks).contains(&Promise::Concurrency));
}

#[test]
fn a_place_that_a_crash_leaks_is_found() {
    assert_eq!(all_broken(Engine::CountsInTheRow), [Promise::EveryCallEnds]);
}

#[test]
fn a_limit_exceeded_after_a_process_was_taken_for_dead_is_found() {
    assert!(all_broken(Engine::SweepsBeforeTheLeaseEnds).contains(&Promise::Concurrency));
}

#[test]
fn a_rate_of_each_process_is_found() {
    assert_eq!(all_broken(Engine::RemembersTheRateInEachProcess), [Promise::Rate]);
}

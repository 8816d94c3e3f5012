//! A limit over two partitions in a simulation: processes look, grant permits, claim, release and check in any order, one commit at a time, and they die or
//! are frozen between any two of them. Nothing that is done as the engine does it breaks a promise. Each mistake that an engine could make breaks one.

use std::collections::BTreeMap;

use fsm_core::permit::{PermitRow, over_below};

use crate::random::Random;

const SEEDS: u64 = 60;
const CALLS: usize = 12;
const PROCESSES: usize = 4;
const LIMIT: usize = 2;
const CHECKED_AFTER: i64 = 30;
const BUCKET: &str = "stripe";

/// The engine, or one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    /// A check deletes the permit of each instance that runs nothing, also while a claim is under way.
    ReleasesDuringTheClaim,
    /// Only the process of a call releases its permit.
    NeverChecks,
    /// A claim takes any instance that waits, also if it has changed since the permit was granted.
    ClaimsInAnyVersion,
    /// A permit is deleted in whatever version it is, also if a newer one was granted since the instance was read.
    DeletesNewerPermits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// No more calls run in both partitions than the limit says.
    Concurrency,
    /// Each call ends at some time: no place under the limit is lost.
    EveryCallEnds,
    /// In the end no permit is left.
    EveryPermitEnds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Waits,
    Runs { session: usize },
    Ended,
}

/// An instance of the other partition.
#[derive(Debug, Clone, Copy)]
struct Row {
    version: i64,
    call: Call,
}

impl Row {
    fn set(&mut self, call: Call) {
        self.call = call;
        self.version += 1;
    }

    fn read(self) -> PermitRow {
        PermitRow { row_version: self.version, runs_under: matches!(self.call, Call::Runs { .. }).then(|| BUCKET.to_owned()) }
    }
}

/// The next commit of a claim with a permit. Each has the row and the version that was read.
#[derive(Debug, Clone, Copy)]
enum Claim {
    Look,
    Grant(usize, i64),
    Take(usize, i64),
}

/// The next commit of a release or of a check.
#[derive(Debug, Clone)]
enum Release {
    Begin,
    Fence(Vec<(usize, i64)>),
    Read(Vec<usize>),
    Delete(Vec<(usize, i64)>),
}

#[derive(Debug, Clone)]
struct Process {
    session: usize,
    is_frozen: bool,
    claim: Claim,
    release: Release,
    ended: Vec<usize>,
}

struct World {
    engine: Engine,
    random: Random,
    now: i64,
    /// The calls in the home of the limit, which need no permit.
    at_home: Vec<Call>,
    rows: Vec<Row>,
    /// For each row, the version of its permit and the time of the grant.
    permits: BTreeMap<usize, (i64, i64)>,
    processes: Vec<Process>,
    sessions: usize,
}

impl World {
    fn new(engine: Engine, seed: u64) -> World {
        let (at_home, rows) = (vec![Call::Waits; CALLS], vec![Row { version: 1, call: Call::Waits }; CALLS]);
        let (random, permits) = (Random::new(seed), BTreeMap::new());
        let mut world = World { engine, random, now: 0, at_home, rows, permits, processes: Vec::new(), sessions: 0 };
        for _ in 0..PROCESSES {
            let process = world.process();
            world.processes.push(process);
        }
        world
    }

    fn process(&mut self) -> Process {
        self.sessions += 1;
        Process { session: self.sessions, is_frozen: false, claim: Claim::Look, release: Release::Begin, ended: Vec::new() }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn runs(&self) -> usize {
        let calls = self.at_home.iter().chain(self.rows.iter().map(|row| &row.call));
        calls.filter(|call| matches!(call, Call::Runs { .. })).count()
    }

    fn has_room(&self) -> bool {
        let at_home = self.at_home.iter().filter(|call| matches!(call, Call::Runs { .. })).count();
        at_home + self.permits.len() < LIMIT
    }

    /// One commit of one process, or an accident.
    fn step(&mut self, has_accidents: bool) {
        self.now += 1;
        let p = self.draw(PROCESSES);
        match self.draw(if has_accidents { 44 } else { 36 }) {
            36 => return self.die(p),
            37..40 => return self.processes[p].is_frozen = true,
            40.. => return self.processes[p].is_frozen = false,
            _ if !has_accidents => self.processes[p].is_frozen = false,
            _ => {}
        }
        if self.processes[p].is_frozen {
            return;
        }
        match self.draw(12) {
            0..4 => self.claim(p),
            4..8 => self.release(p),
            8 => self.claim_at_home(p),
            9 => self.end(p),
            10 => self.sweep(),
            // Something else is written to an instance, such as its inbox.
            _ => {
                let row = self.draw(CALLS);
                self.rows[row].version += 1;
            }
        }
    }

    fn claim(&mut self, p: usize) {
        let next = match self.processes[p].claim {
            Claim::Look => {
                let row = self.draw(CALLS);
                let Row { version, call } = self.rows[row];
                if call == Call::Waits { Claim::Grant(row, version) } else { Claim::Look }
            }
            Claim::Grant(row, version) => {
                let is_newer = self.permits.get(&row).is_none_or(|(granted, _)| *granted < version);
                if self.has_room() && is_newer {
                    self.permits.insert(row, (version, self.now));
                    Claim::Take(row, version)
                } else {
                    Claim::Look
                }
            }
            Claim::Take(row, version) => {
                let is_same = self.rows[row].version == version || self.engine == Engine::ClaimsInAnyVersion;
                if self.rows[row].call == Call::Waits && is_same {
                    let session = self.processes[p].session;
                    self.rows[row].set(Call::Runs { session });
                }
                Claim::Look
            }
        };
        self.processes[p].claim = next;
    }

    fn claim_at_home(&mut self, p: usize) {
        let (session, has_room) = (self.processes[p].session, self.has_room());
        if let Some(call) = self.at_home.iter_mut().find(|call| **call == Call::Waits).filter(|_| has_room) {
            *call = Call::Runs { session };
        }
    }

    /// The end of the calls of a process. Some attempts fail, and their calls wait again.
    fn end(&mut self, p: usize) {
        let runs = Call::Runs { session: self.processes[p].session };
        self.at_home.iter_mut().filter(|call| **call == runs).for_each(|call| *call = Call::Ended);
        for row in 0..CALLS {
            if self.rows[row].call == runs {
                let call = if self.draw(3) == 0 { Call::Ended } else { Call::Waits };
                self.rows[row].set(call);
                self.processes[p].ended.push(row);
            }
        }
    }

    /// The next commit of a release of what has ended here, or of a check of old permits.
    fn release(&mut self, p: usize) {
        let next = match self.processes[p].release.clone() {
            Release::Begin => {
                let ended = std::mem::take(&mut self.processes[p].ended);
                let before = self.now - CHECKED_AFTER;
                let old =
                    self.permits.iter().filter(|(_, (_, granted_at))| *granted_at < before).map(|(row, (version, _))| (*row, *version));
                match (ended.is_empty(), self.engine) {
                    (false, _) => Release::Read(ended),
                    (true, Engine::NeverChecks) => Release::Begin,
                    (true, _) => Release::Fence(old.collect()),
                }
            }
            Release::Fence(old) => {
                for (row, version) in &old {
                    let row = &mut self.rows[*row];
                    if self.engine != Engine::ReleasesDuringTheClaim && row.version <= *version && !matches!(row.call, Call::Runs { .. }) {
                        row.version = version + 1;
                    }
                }
                Release::Read(old.into_iter().map(|(row, _)| row).collect())
            }
            Release::Read(rows) => {
                let over = |row: usize| {
                    let below = over_below(BUCKET, Some(&self.rows[row].read()))?;
                    Some((row, if self.engine == Engine::ReleasesDuringTheClaim { i64::MAX } else { below }))
                };
                Release::Delete(rows.into_iter().filter_map(over).collect())
            }
            Release::Delete(over) => {
                let takes_newer = self.engine == Engine::DeletesNewerPermits;
                for (row, below) in over {
                    if self.permits.get(&row).is_some_and(|(version, _)| *version < below || takes_newer) {
                        self.permits.remove(&row);
                    }
                }
                Release::Begin
            }
        };
        self.processes[p].release = next;
    }

    /// A process is gone, and another one takes its place.
    fn die(&mut self, p: usize) {
        self.processes[p] = self.process();
    }

    /// The calls of dead processes are lost, and wait again.
    fn sweep(&mut self) {
        let live: Vec<usize> = self.processes.iter().map(|process| process.session).collect();
        let is_lost = |call: &Call| matches!(call, Call::Runs { session } if !live.contains(session));
        self.at_home.iter_mut().filter(|call| is_lost(call)).for_each(|call| *call = Call::Waits);
        self.rows.iter_mut().filter(|row| is_lost(&row.call)).for_each(|row| row.set(Call::Waits));
    }
}

/// Runs one seed. Returns the promise that is broken.
fn broken(engine: Engine, seed: u64) -> Option<Promise> {
    let mut world = World::new(engine, seed);
    for n in 0..60_000 {
        world.step(n < 4_000);
        if world.runs() > LIMIT {
            return Some(Promise::Concurrency);
        }
        let has_ended = world.at_home.iter().chain(world.rows.iter().map(|row| &row.call)).all(|call| *call == Call::Ended);
        if has_ended && n > 4_000 && world.permits.is_empty() {
            return None;
        }
    }
    let has_ended = world.at_home.iter().chain(world.rows.iter().map(|row| &row.call)).all(|call| *call == Call::Ended);
    Some(if has_ended { Promise::EveryPermitEnds } else { Promise::EveryCallEnds })
}

fn all_broken(engine: Engine) -> Vec<Promise> {
    crate::all_broken(SEEDS, |seed| broken(engine, seed))
}

#[test]
fn no_process_that_dies_or_is_frozen_breaks_a_limit_over_two_partitions() {
    assert_eq!(all_broken(Engine::Ours), []);
}

#[test]
fn a_permit_that_is_released_while_its_claim_is_under_way_is_found() {
    assert!(all_broken(Engine::ReleasesDuringTheClaim).contains(&Promise::Concurrency));
}

#[test]
fn a_permit_that_is_never_released_is_found() {
    let broken = all_broken(Engine::NeverChecks);
    assert!(broken.contains(&Promise::EveryCallEnds) && !broken.contains(&Promise::Concurrency), "{broken:?}");
}

#[test]
fn a_claim_in_another_row_version_than_that_of_its_permit_is_found() {
    assert!(all_broken(Engine::ClaimsInAnyVersion).contains(&Promise::Concurrency));
}

#[test]
fn a_release_of_a_newer_permit_is_found() {
    assert!(all_broken(Engine::DeletesNewerPermits).contains(&Promise::Concurrency));
}

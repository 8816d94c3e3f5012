//! The world of one schedule: a database, processes and a clock. Each step is applied here, and everything is checked after it.

use std::time::Duration;

use fsm_core::ids::{CallId, SessionId};
use fsm_core::process::{ProcessIdentity, ProcessPlace};
use fsm_core::time::Timestamp;

use crate::invariants;
use crate::machine::machine;
use crate::model::Model;
use crate::model::commit::{Commit, Way};
use crate::model::promise::Broken;

use crate::model::variant::Variant;
use crate::process::{LEASE, Process};
use crate::step::{Act, Step};

/// The number of processes.
pub const PROCESSES: usize = 3;

pub struct World {
    pub model: Model,
    pub now: Timestamp,
    pub is_up: bool,
    pub processes: Vec<Process>,
    /// Commits whose processes no longer wait for them, and which may still reach the database.
    pub adrift: Vec<(usize, Commit)>,
    /// The number of processes that were started.
    starts: u64,
}

/// The identity of a process. The first ones run on the machine itself. The last one runs in a container on it, with the process id of a
/// process that once ran on the machine.
fn home(process: usize, started: u64) -> ProcessIdentity {
    let is_in_a_container = process == PROCESSES - 1;
    let (machine, namespaces) = if is_in_a_container { (None, "pid:[2]") } else { (Some("m".to_owned()), "pid:[1]") };
    let place = ProcessPlace { machine, boot: "b".into(), namespaces: namespaces.into(), started };
    ProcessIdentity { host: "h".into(), pid: if is_in_a_container { 1 } else { started as u32 }, place: Some(place) }
}

impl World {
    pub fn new(variant: Variant) -> World {
        World::of(Model::new(machine(), variant), Timestamp::from_micros(1_000_000_000))
    }

    /// The world around a database, whose clock shows this time.
    pub fn of(model: Model, now: Timestamp) -> World {
        let mut world = World { model, now, is_up: true, processes: Vec::new(), adrift: Vec::new(), starts: 0 };
        for process in 0..PROCESSES {
            let session = SessionId(world.model.fresh());
            let started = world.next_start();
            world.processes.push(Process { home: home(process, started), ..Process::born(session, 0) });
            world.renew(process);
        }
        world
    }

    /// Returns the time that the process's clock shows.
    pub fn clock(&self, process: usize) -> Timestamp {
        Timestamp::from_micros(self.now.as_micros() + self.processes[process].skew_us)
    }

    /// True if the process runs and reaches the database.
    pub fn is_working(&self, process: usize) -> bool {
        let process = &self.processes[process];
        self.is_up && process.is_alive && !process.is_stalled
    }

    /// Applies a step; one that does not apply does nothing. An error is a promise that it broke.
    pub fn step(&mut self, step: &Step) -> Result<(), Broken> {
        self.apply(step)?;
        self.check()
    }

    /// Checks the promises that hold after every step, if something has changed.
    pub fn check(&mut self) -> Result<(), Broken> {
        if std::mem::take(&mut self.model.is_dirty) {
            invariants::check(&self.model.store, &self.model.machine)?;
            self.model.ledger.check(&self.model.store)?;
        }
        Ok(())
    }

    /// Applies a step without checking anything.
    pub fn apply(&mut self, step: &Step) -> Result<(), Broken> {
        let p = step.process;
        let (is_working, is_able) = (self.is_working(p), self.processes[p].is_alive && !self.processes[p].is_stalled);
        match &step.act {
            Act::Send { .. } | Act::Operate { .. } | Act::EndVerb { .. } if is_able => self.ask(p, &step.act),
            Act::Begin { most, grants, how } if is_working => return self.begin(p, *most, *grants, *how),
            Act::Finish { which, end } if is_working => return self.finish(p, *which, *end),
            Act::Land { which, commits } => return self.land(*which, *commits),
            Act::SecondHalf if is_working => return self.write_second_half(p),
            Act::Claim { limit, end } if is_working => return self.claim(p, *limit, *end),
            Act::LookForTimers if is_working => self.look_for_timers(p),
            Act::Deliver if is_working => self.look_for_lines(p),
            Act::TakeOver if is_working => return self.take_over(p),
            Act::LookForIdleAttempts if is_working => self.look_for_idle_attempts(p),
            Act::ReleaseIdleAttempts if is_able => self.release_idle_attempts(p),
            Act::LookForOrphans if is_working => return self.look_for_orphans(p),
            Act::Bury if is_working && self.may_sweep(p) => self.model.store.bury(self.clock(p)),
            Act::Prune { key } if is_working => self.prune(*key),
            Act::Renew if is_working && !self.processes[p].is_cut => self.renew(p),
            Act::Advance { us } => self.advance(Duration::from_micros(us.unsigned_abs())),
            Act::Skew { us } => {
                self.processes[p].skew_us = *us;
                self.model.ledger.is_skewed |= *us != 0;
            }
            Act::Stall | Act::Wake => {
                self.processes[p].is_stalled = matches!(step.act, Act::Stall);
                self.processes[p].is_disturbed = true;
            }
            Act::Cut | Act::Mend => {
                self.processes[p].is_cut = matches!(step.act, Act::Cut);
                self.processes[p].is_disturbed = true;
            }
            Act::ShutDown if is_able && !self.processes[p].is_shutting_down => self.shut_down(p),
            Act::Crash { adrift } => self.crash(p, *adrift),
            Act::Start if !self.processes[p].is_alive => {
                let session = SessionId(self.model.fresh());
                let started = self.next_start();
                self.processes[p] = Process { home: home(p, started), ..Process::born(session, self.processes[p].skew_us) };
            }
            Act::DatabaseDown => self.go_down(),
            Act::DatabaseUp if !self.is_up => {
                self.is_up = true;
                self.processes.iter_mut().for_each(|process| process.has_renewed = false);
            }
            _ => {}
        }
        Ok(())
    }

    fn crash(&mut self, p: usize, adrift: bool) {
        let dead = Process { skew_us: self.processes[p].skew_us, ..Process::dead() };
        let died = std::mem::replace(&mut self.processes[p], dead);
        if adrift && self.is_up {
            // A speculative decision has not reached the database yet.
            let was_said = |commit: &Commit| !commit.is_undecided() && !matches!(commit.way, Way::Ahead(_));
            self.adrift.extend(died.commits_in_flight.into_iter().filter(was_said).map(|commit| (p, commit)));
        }
    }

    /// Rolls back every transaction. The requests wait for the database, as in `Engine::put_back`.
    fn go_down(&mut self) {
        if !self.is_up {
            return;
        }
        self.is_up = false;
        self.adrift.clear();
        for p in 0..PROCESSES {
            // If a process could not renew its lease between two outages, the database was not the only cause.
            self.processes[p].is_disturbed |= !self.processes[p].has_renewed;
            for commit in std::mem::take(&mut self.processes[p].commits_in_flight) {
                self.put_back(p, commit.batch);
            }
        }
    }

    /// Lets time pass for all processes. Each process that can renews its lease in time, because a separate thread does that.
    fn advance(&mut self, span: Duration) {
        let mut left = span;
        while !left.is_zero() {
            let slice = left.min(LEASE / 4);
            left -= slice;
            self.now = self.now + slice;
            for p in 0..PROCESSES {
                let is_time = self.processes[p].life.until.since(self.clock(p)) <= LEASE / 4 * 3;
                if is_time && self.is_working(p) && !self.processes[p].is_cut {
                    self.renew(p);
                }
            }
        }
    }

    fn next_start(&mut self) -> u64 {
        self.starts += 1;
        self.starts
    }

    pub fn call_id(&mut self) -> CallId {
        let call = CallId(self.model.fresh());
        self.model.ledger.clients.insert(call);
        call
    }
}

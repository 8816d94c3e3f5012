//! Draws the next step at random, mostly one that applies. The kinds of steps that a schedule may contain differ between schedules.

use fsm_core::decide::operate::Act as Operating;
use fsm_core::retry::{Retry, RetryAdvice};
use std::time::Duration;

use crate::machine::{EVENTS, RARE};
use crate::model::queue::KEYS;
use crate::random::Random;
use crate::step::{Act, Dedup, End, Ending, How, Step};
use crate::world::{PROCESSES, World};

/// The kinds of steps that a schedule may contain.
pub struct Mood {
    random: Random,
    /// No faults happen.
    is_calm: bool,
    /// The process that acts next in a calm schedule.
    turn: usize,
    skews: bool,
    outages: bool,
    silences: bool,
    deaths: bool,
    unknown_commits: bool,
    operators: bool,
    how: How,
    prunes: bool,
    /// Many verbs send to one instance, so that its inbox fills.
    fans_in: bool,
    keys: usize,
}

impl Mood {
    pub fn new(seed: u64) -> Mood {
        let mut random = Random::new(seed);
        // Without faults, the processes commit so often that the commits of several processes alternate.
        let is_calm = random.one_in(4);
        let mut one_in = |n: usize| random.one_in(n) && !is_calm;
        Mood {
            is_calm,
            turn: 0,
            skews: one_in(4),
            outages: one_in(3),
            silences: one_in(2),
            deaths: one_in(2),
            unknown_commits: one_in(2),
            operators: one_in(2),
            prunes: one_in(2),
            fans_in: random.one_in(3),
            how: [How::Locked, How::AtOnce, How::Ahead][random.below(3)],
            keys: if is_calm { 2 } else { 1 + random.below(KEYS.len()) },
            random,
        }
    }

    /// The kinds of steps in one of several partitions. These are on PostgreSQL, where all processes have the clock of the database.
    pub fn of_a_partition(seed: u64) -> Mood {
        let mood = Mood::new(seed);
        let how = if mood.how == How::Ahead { How::AtOnce } else { mood.how };
        Mood { skews: false, how, keys: KEYS.len(), ..mood }
    }

    /// The number of steps before the world is brought to rest.
    pub fn steps(&self) -> usize {
        if self.is_calm { 400 } else { 120 }
    }

    /// Draws the next step.
    pub fn draw(&mut self, world: &World) -> Step {
        // One process does most of the work, so that the file version stays the same for long enough. In a calm schedule, each process does
        // many steps in a row.
        let process = match self.how {
            How::Ahead if self.is_calm => {
                if self.random.one_in(20) {
                    self.turn = if self.random.one_in(2) { 0 } else { self.random.below(PROCESSES) };
                }
                self.turn
            }
            How::Ahead if !self.random.one_in(5) => 0,
            _ => self.random.below(PROCESSES),
        };
        Step { process, act: self.act(world, process) }
    }

    fn act(&mut self, world: &World, p: usize) -> Act {
        let (process, now) = (&world.processes[p], world.clock(p));
        if !process.is_alive {
            return if self.random.one_in(3) { Act::Start } else { self.world_moves(world) };
        }
        if process.is_stalled {
            return if self.random.one_in(4) { Act::Wake } else { self.world_moves(world) };
        }
        // Sweeping is most likely to go wrong directly after an outage.
        if world.is_up && self.outages && self.random.below(3) > 0 && !world.model.store.orphans(now).is_empty() {
            return match () {
                () if process.has_renewed || self.random.one_in(3) => Act::LookForOrphans,
                // A commit may renew the lease.
                () if !process.commits_in_flight.is_empty() && self.random.one_in(2) => Act::Finish { which: 0, end: End::Commits },
                () if !process.queue.is_empty() && self.random.one_in(2) => Act::Begin { most: 3, grants: true, how: self.how },
                () => Act::Renew,
            };
        }
        if self.random.one_in(5) {
            return self.world_moves(world);
        }
        if self.random.one_in(if self.outages { 7 } else { 14 }) {
            return self.fault(p, world);
        }
        if self.operators && self.random.one_in(8) {
            return self.operate();
        }
        if !process.commits_in_flight.is_empty() && self.random.one_in(2) {
            return Act::Finish { which: self.random.below(2), end: self.end() };
        }
        if !process.queue.is_empty() && self.random.below(4) > 0 {
            let (most, grants) = (1 + self.random.below(3), self.random.one_in(2));
            let is_other = self.random.one_in(if self.how == How::Ahead && !self.is_calm { 10 } else { 4 });
            return Act::Begin { most, grants, how: if is_other { How::Locked } else { self.how } };
        }
        if process.running.iter().any(|running| !running.has_ended) && self.random.one_in(3) {
            return Act::EndVerb { which: self.random.below(3), outcome: self.ending(), own_tx: self.random.one_in(6) };
        }
        let is_due = !world.model.store.due(now, 1).is_empty() || !process.found.is_empty();
        if is_due && self.random.one_in(2) {
            return Act::Claim { limit: 1 + self.random.below(2), end: self.end() };
        }
        match self.random.below(20) {
            0..=1 if !world.model.store.due_timers(now).is_empty() => Act::LookForTimers,
            2..=4 if !process.idle_attempts.is_empty() || !process.log.is_empty() => Act::ReleaseIdleAttempts,
            5 => Act::LookForIdleAttempts,
            6..=7 => Act::LookForOrphans,
            8 => Act::Bury,
            11 if self.deaths => Act::TakeOver,
            9 => Act::Renew,
            12..=14 if !world.model.store.outbox.is_empty() => Act::Deliver,
            10 if self.prunes => Act::Prune { key: self.random.below(self.keys) },
            _ if !process.halves.is_empty() => Act::SecondHalf,
            _ => self.send(world),
        }
    }

    fn world_moves(&mut self, world: &World) -> Act {
        if !world.adrift.is_empty() && self.random.one_in(2) {
            return Act::Land { which: self.random.below(2), commits: self.random.below(3) > 0 };
        }
        if !world.is_up && self.random.one_in(3) {
            return Act::DatabaseUp;
        }
        let us = match self.random.below(6) {
            _ if !world.is_up => self.random.pick(&[1_000_000, 2_000_000, 5_000_000, 7_000_000, 9_000_000]),
            0 => 1,
            1 => 400_000,
            2 | 3 => 1_000_000,
            4 => 5_000_000,
            _ => 9_000_000,
        };
        Act::Advance { us }
    }

    fn fault(&mut self, p: usize, world: &World) -> Act {
        match self.random.below(8) {
            0 if self.skews => Act::Skew { us: self.random.pick(&[0, -1, 1_000_000, -3_000_000, 60_000_000, -60_000_000]) },
            0 | 1 if self.outages && world.is_up => Act::DatabaseDown,
            7 if self.outages => Act::Renew,
            2 if self.silences => Act::Stall,
            3 if self.silences && !world.processes[p].is_cut => Act::Cut,
            4 if world.processes[p].is_cut => Act::Mend,
            5 | 6 if self.deaths => Act::Crash { adrift: self.unknown_commits && self.random.one_in(2) },
            7 if self.deaths => Act::ShutDown,
            _ => self.send(world),
        }
    }

    fn end(&mut self) -> End {
        match self.random.below(12) {
            0 | 1 if self.unknown_commits => End::AnswerLost,
            2 => End::Fails,
            _ => End::Commits,
        }
    }

    fn event(&mut self) -> &'static str {
        if self.is_calm {
            // Instances that have ended would accept no more events.
            return self.random.pick(&["Note", "Note", "Pay", "Ship"]);
        }
        if self.random.one_in(8) { self.random.pick(&RARE) } else { self.random.pick(&EVENTS) }
    }

    fn send(&mut self, world: &World) -> Act {
        let key = self.random.below(self.keys);
        // `Create` is drawn more often, because without it an instance accepts nothing.
        let is_first = if self.is_calm { world.model.store.instance(KEYS[key]).is_none() } else { self.random.one_in(3) };
        let event = if is_first { EVENTS[0] } else { self.event() };
        let dedup = self.random.one_in(3).then(|| Dedup { id: self.random.below(2) as u8, other_content: self.random.one_in(6) });
        let after_s = self.random.one_in(6).then(|| self.random.pick(&[0, 2, 7]));
        Act::Send { key, event, dedup, after_s, reject_if_busy: self.random.one_in(8) }
    }

    fn operate(&mut self) -> Act {
        let policy = if self.random.one_in(2) {
            Retry::every(Duration::from_secs(2)).retries_at_most(3)
        } else {
            Retry::doubling(Duration::from_secs(1), Duration::from_secs(8))
        };
        let set = Operating::SetRetry(Box::new(policy));
        let acts = [Operating::Retry, Operating::Retry, Operating::Skip, Operating::Pause, Operating::Resume, Operating::Resume, set];
        let act = if self.random.one_in(10) { Operating::Cancel } else { self.random.pick(&acts) };
        let request_id = self.random.one_in(3).then(|| self.random.below(3) as u8);
        Act::Operate { key: self.random.below(self.keys), act, request_id }
    }

    fn ending(&mut self) -> Ending {
        if self.random.below(5) < 2 {
            let wait = Duration::from_secs(self.random.below(12) as u64);
            if self.random.one_in(5) {
                return Ending::Snooze(wait.as_secs());
            }
            return Ending::Failure(self.random.pick(&[
                RetryAdvice::Default,
                RetryAdvice::Default,
                RetryAdvice::Never,
                RetryAdvice::After(wait),
            ]));
        }
        let next = self.random.one_in(4).then(|| self.event());
        let mut sends = Vec::new();
        let (one_in, most) = if self.fans_in { (1, 3) } else { (4, 2) };
        while self.random.one_in(one_in) && sends.len() < most {
            let key = if self.fans_in { 0 } else { self.random.below(self.keys) };
            let event = if self.fans_in && !self.random.one_in(3) { "Note" } else { self.event() };
            sends.push((key, event, self.random.one_in(4).then_some(3)));
        }
        Ending::Success { next, sends, cancels: false }
    }
}

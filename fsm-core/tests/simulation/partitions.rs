//! The schedules of two partitions with the same processes. They crash, lose answers, and a partition cannot be reached or is moved, while events go from
//! one to the other.

mod delivering;
mod drawn;
mod moving;
pub mod pair;
mod promises;

use std::time::Duration;

use drawn::PairMood;
use pair::{Pair, PairAct, Turn};

use crate::model::promise::Broken;
use crate::model::queue::KEYS;
use crate::model::variant::Variant;
use crate::rest;
use crate::schedule::Scheduled;
use crate::step::{Act, End, Step};
use crate::world::PROCESSES;

impl Scheduled for Pair {
    type Step = Turn;
    type Mood = PairMood;

    fn begin(variant: Variant, seed: u64) -> (Pair, PairMood) {
        (Pair::new(variant), PairMood::new(seed))
    }

    fn steps(_mood: &PairMood) -> usize {
        160
    }

    fn draw(&self, mood: &mut PairMood) -> Turn {
        mood.draw(self)
    }

    fn take(&mut self, step: &Turn) -> Result<(), Broken> {
        self.apply(step)?;
        self.check_both()
    }

    fn rest(&mut self) -> Result<(), Broken> {
        for x in 0..self.worlds.len() {
            self.end_move(x)?;
            rest::end_faults(&mut self.worlds[x])?;
            (0..PROCESSES).for_each(|p| self.read_directory(x, p));
        }
        for _ in 0..rest::ROUNDS {
            let mut has_worked = false;
            for p in 0..PROCESSES {
                for world in &mut self.worlds {
                    has_worked |= rest::renew_and_work(world, p)?;
                }
                has_worked |= self.deliver_once(p)?;
            }
            if has_worked {
                continue;
            }
            let mut has_resumed = false;
            for world in &mut self.worlds {
                rest::replace_processes(world)?;
                has_resumed |= rest::resume_one(world)?;
            }
            if has_resumed {
                continue;
            }
            let Some(wait) = self.next_moment() else { return self.check_at_rest() };
            self.worlds.iter_mut().try_for_each(|world| rest::advance(world, wait))?;
            self.check_both()?;
        }
        rest::never_comes_to_rest()
    }
}

impl Pair {
    fn check_both(&mut self) -> Result<(), Broken> {
        let is_dirty = self.worlds.iter().any(|world| world.model.is_dirty);
        self.worlds.iter_mut().try_for_each(|world| world.check())?;
        if is_dirty { self.check() } else { Ok(()) }
    }

    fn apply(&mut self, step: &Turn) -> Result<(), Broken> {
        let Turn { partition: x, process: p, act } = step;
        let (x, p) = (*x, *p);
        match act {
            PairAct::In(act) => self.apply_in(x, &Step { process: p, act: act.clone() }),
            PairAct::Freeze | PairAct::Copy | PairAct::Switch | PairAct::CancelMove => self.moves(x, act),
            PairAct::GiveUp { which } => {
                self.give_up(p, *which);
                Ok(())
            }
            PairAct::ClaimLine { key, end } => self.at_its_place(x, p, |pair| {
                pair.claim_line(x, p, *key, *end);
                Ok(())
            }),
            PairAct::DeliverNext { which, end } => {
                let Some(n) = self.delivery_of(p, *which) else { return Ok(()) };
                self.at_its_place(self.deliveries[n].from, p, |pair| {
                    pair.deliver_next(n, *end);
                    Ok(())
                })
            }
        }
    }

    /// Takes a step in one partition, or in both if it is about the whole process or about time.
    fn apply_in(&mut self, x: usize, step: &Step) -> Result<(), Broken> {
        let p = step.process;
        match &step.act {
            Act::Crash { .. } => self.deliveries.retain(|one| one.process != p),
            Act::DatabaseUp if self.places[x].is_frozen => return Ok(()),
            // The requests of the receivers are kept for longer than any event waits in an outbox.
            Act::Prune { key } if self.has_events_for(*key) => return Ok(()),
            _ => {}
        }
        match &step.act {
            Act::Crash { .. } | Act::Start | Act::ShutDown | Act::Stall | Act::Wake | Act::Advance { .. } => {
                self.worlds.iter_mut().try_for_each(|world| world.apply(step))
            }
            _ => self.at_its_place(x, p, |pair| pair.worlds[x].apply(step)),
        }
    }

    /// Takes a step of a process in the place of partition `x` that the process knows. If the partition has left that place, its statements fail, and
    /// the process reads the directory. A broken engine goes on at the old place.
    fn at_its_place(&mut self, x: usize, p: usize, act: impl FnOnce(&mut Pair) -> Result<(), Broken>) -> Result<(), Broken> {
        if self.knows_the_place(x, p) {
            return act(self);
        }
        if self.variant != Variant::StaleDirectory {
            self.read_directory(x, p);
            return Ok(());
        }
        self.change_places(x);
        let acted = act(self);
        self.change_places(x);
        acted
    }

    fn has_events_for(&self, key: usize) -> bool {
        let key = KEYS[key];
        let waits = self.worlds.iter().flat_map(|world| &world.model.store.partition_outbox).any(|row| row.outgoing.key == key);
        waits || self.deliveries.iter().any(|one| one.delivery.line().key == key)
    }

    /// Lets a process do one piece of work for a delivery. Returns whether it found any.
    fn deliver_once(&mut self, p: usize) -> Result<bool, Broken> {
        if let Some(one) = self.deliveries.iter().find(|one| one.process == p) {
            let (is_sending, tries) = (one.sending.is_some(), one.tries);
            self.take(&Turn { partition: one.from, process: p, act: PairAct::DeliverNext { which: 0, end: End::Commits } })?;
            let after = self.deliveries.iter().find(|one| one.process == p);
            return Ok(after.is_none_or(|after| (after.sending.is_some(), after.tries) != (is_sending, tries)));
        }
        for x in 0..self.worlds.len() {
            let world = &self.worlds[x];
            let due = world.model.store.due_elsewhere(world.clock(p)).into_iter().find(|key| !self.has_no_room(KEYS[*key]));
            if let Some(key) = due.filter(|_| !world.processes[p].is_shutting_down) {
                self.take(&Turn { partition: x, process: p, act: PairAct::ClaimLine { key, end: End::Commits } })?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The time until something is due in one of the partitions.
    fn next_moment(&self) -> Option<Duration> {
        let own = self.worlds.iter().filter_map(rest::next_moment);
        let outbox = self.worlds.iter().flat_map(|world| world.model.store.partition_outbox.iter().map(|row| (row, world.now)));
        let due = outbox.filter(|(row, _)| !self.has_no_room(&row.outgoing.key)).map(|(row, now)| row.due_at.since(now));
        own.chain(due).min()
    }
}

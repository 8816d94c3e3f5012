//! Two workers, an operator and a clock share the row of one schedule. Every order of their steps and crashes is tried, with the real decision.
//! A correct engine keeps each promise, and each deliberate mistake is found by the promise that it breaks.

use std::collections::HashSet;

use fsm_core::decide::schedule::{Missed, Step, step};
use fsm_core::time::Timestamp;

/// The moments are the multiples of it.
const EVERY_S: i64 = 100;
/// The clock goes by it.
const TICK_S: i64 = 50;
/// The end of the clock.
const END_S: i64 = 500;

/// The correct engine, and engines with one mistake each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    True,
    /// The commit does not compare the moment that was read with that of the row.
    MomentNotCompared,
    /// The commit does not compare whether the schedule is paused.
    PauseNotCompared,
    /// The schedule moves on in one commit, and the event is sent in the next.
    AdvanceThenSend,
    /// The event is sent in one commit, and the schedule moves on in the next.
    SendThenAdvance,
    /// The next moment is the first after now, not after the moment that is sent.
    NextAfterNow,
    /// A schedule that is resumed goes on where it was paused.
    ResumedWhereItWas,
}

/// A promise that a schedule keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    NoMomentIsSentTwice,
    EveryMomentIsSentThatShouldBe,
    NothingIsSentWhilePaused,
    WhatPassedWhilePausedIsNotSent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    /// It has read the row and decided a step.
    Decided {
        from: i64,
        send: Option<i64>,
        next: Option<i64>,
    },
    /// It has made the first of two commits.
    HalfWay {
        from: i64,
        send: Option<i64>,
        next: Option<i64>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    now: i64,
    next: Option<i64>,
    is_paused: bool,
    /// The number of times that the operator may still pause it.
    pauses: u8,
    sent: Vec<i64>,
    /// Moments that passed while it was paused.
    passed_by: Vec<i64>,
    workers: [Worker; 2],
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn seconds(at: Timestamp) -> i64 {
    at.as_micros() / 1_000_000
}

fn after(from: i64) -> i64 {
    (from.div_euclid(EVERY_S) + 1) * EVERY_S
}

fn decide(variant: Variant, missed: Missed, next: i64, now: i64) -> Option<Worker> {
    let Step { send, next: then } = step(at(next), at(now), missed, |from| Some(at(after(seconds(from)))))?;
    let then = if variant == Variant::NextAfterNow { Some(after(now)) } else { then.map(seconds) };
    Some(Worker::Decided { from: next, send: send.map(seconds), next: then })
}

impl World {
    fn new() -> World {
        let (sent, passed_by) = (Vec::new(), Vec::new());
        World { now: 0, next: Some(EVERY_S), is_paused: false, pauses: 1, sent, passed_by, workers: [Worker::Idle; 2] }
    }

    fn send(&mut self, moment: Option<i64>) -> Result<(), Promise> {
        let Some(moment) = moment else { return Ok(()) };
        if self.sent.contains(&moment) {
            return Err(Promise::NoMomentIsSentTwice);
        }
        if self.is_paused {
            return Err(Promise::NothingIsSentWhilePaused);
        }
        if self.passed_by.contains(&moment) {
            return Err(Promise::WhatPassedWhilePausedIsNotSent);
        }
        self.sent.push(moment);
        self.sent.sort_unstable();
        Ok(())
    }

    /// The next step of a worker: it looks, or it commits.
    fn work(&mut self, place: usize, variant: Variant, missed: Missed) -> Result<(), Promise> {
        let done = Worker::Idle;
        self.workers[place] = match self.workers[place] {
            Worker::Idle => {
                let due = self.next.filter(|_| !self.is_paused).and_then(|next| decide(variant, missed, next, self.now));
                due.unwrap_or(done)
            }
            Worker::Decided { from, send, next } => {
                let is_current = self.next == Some(from) || variant == Variant::MomentNotCompared;
                if !is_current || self.is_paused && variant != Variant::PauseNotCompared {
                    done
                } else if variant == Variant::AdvanceThenSend {
                    self.next = next;
                    Worker::HalfWay { from, send, next }
                } else if variant == Variant::SendThenAdvance {
                    self.send(send)?;
                    Worker::HalfWay { from, send, next }
                } else {
                    self.next = next;
                    self.send(send)?;
                    done
                }
            }
            Worker::HalfWay { send, next, .. } => {
                if variant == Variant::AdvanceThenSend {
                    self.send(send)?;
                } else {
                    self.next = next;
                }
                done
            }
        };
        Ok(())
    }

    fn tick(&mut self) {
        self.now += TICK_S;
        if self.is_paused && self.now % EVERY_S == 0 {
            self.passed_by.push(self.now);
        }
    }

    fn operate(&mut self, variant: Variant) {
        self.is_paused = !self.is_paused;
        if self.is_paused {
            self.pauses -= 1;
            // What is due already when it is paused is not sent later either.
            let due = self.next.into_iter().flat_map(|next| (next..=self.now).step_by(EVERY_S as usize));
            self.passed_by.extend(due.filter(|moment| !self.sent.contains(moment)));
        } else if variant != Variant::ResumedWhereItWas {
            self.next = Some(after(self.now));
        }
    }

    /// Every world that one step leads to.
    fn steps(&self, variant: Variant, missed: Missed) -> Result<Vec<World>, Promise> {
        let mut worlds = Vec::new();
        let mut add = |change: &mut dyn FnMut(&mut World) -> Result<(), Promise>| {
            let mut world = self.clone();
            change(&mut world)?;
            worlds.push(world);
            Ok(())
        };
        for place in 0..2 {
            add(&mut |world| world.work(place, variant, missed))?;
            if self.workers[place] != Worker::Idle {
                add(&mut |world| {
                    world.workers[place] = Worker::Idle;
                    Ok(())
                })?;
            }
        }
        if self.now < END_S {
            add(&mut |world| {
                world.tick();
                Ok(())
            })?;
        }
        if self.pauses > 0 || self.is_paused {
            add(&mut |world| {
                world.operate(variant);
                Ok(())
            })?;
        }
        Ok(worlds)
    }

    /// Both workers are gone, and a new one looks until nothing is due. Then everything has been sent that should be.
    fn end(&self, variant: Variant, missed: Missed) -> Result<(), Promise> {
        let mut world = World { workers: [Worker::Idle; 2], ..self.clone() };
        while world.next.is_some_and(|next| next <= world.now) && !world.is_paused {
            world.work(0, variant, missed)?;
        }
        if world.is_paused {
            return Ok(());
        }
        let due: Vec<_> = (EVERY_S..=world.now).step_by(EVERY_S as usize).filter(|moment| !world.passed_by.contains(moment)).collect();
        let is_sent = |moment: &i64| world.sent.contains(moment);
        let is_well = match missed {
            Missed::All => due.iter().all(is_sent),
            Missed::Latest => due.last().is_none_or(is_sent),
            Missed::Skip => due.last().is_none_or(|newest| is_sent(newest) || world.now - newest > 60 || self.sent.contains(newest)),
        };
        if is_well { Ok(()) } else { Err(Promise::EveryMomentIsSentThatShouldBe) }
    }
}

/// Tries every order and returns the promises that one of them breaks.
fn broken(variant: Variant, missed: Missed) -> Vec<Promise> {
    let (mut seen, mut open, mut broken) = (HashSet::new(), vec![World::new()], Vec::new());
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        match world.end(variant, missed).and_then(|()| world.steps(variant, missed)) {
            Ok(worlds) => open.extend(worlds),
            Err(promise) => broken.push(promise),
        }
    }
    assert!(!broken.is_empty() || seen.len() > 1000, "{} worlds are not all", seen.len());
    broken.sort_unstable();
    broken.dedup();
    broken
}

#[test]
fn a_correct_schedule_keeps_every_promise_in_every_order() {
    for missed in [Missed::Latest, Missed::All, Missed::Skip] {
        assert_eq!(broken(Variant::True, missed), [], "{missed}");
    }
}

#[test]
fn every_mistake_is_found_by_the_promise_that_it_breaks() {
    for (variant, missed, promise) in [
        (Variant::MomentNotCompared, Missed::All, Promise::NoMomentIsSentTwice),
        (Variant::PauseNotCompared, Missed::All, Promise::NothingIsSentWhilePaused),
        (Variant::AdvanceThenSend, Missed::All, Promise::EveryMomentIsSentThatShouldBe),
        (Variant::SendThenAdvance, Missed::All, Promise::NoMomentIsSentTwice),
        (Variant::NextAfterNow, Missed::All, Promise::EveryMomentIsSentThatShouldBe),
        (Variant::ResumedWhereItWas, Missed::All, Promise::WhatPassedWhilePausedIsNotSent),
    ] {
        let broken = broken(variant, missed);
        assert!(broken.contains(&promise), "{variant:?} breaks {broken:?}");
    }
}

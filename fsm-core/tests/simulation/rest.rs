//! Brings a world to rest: all faults end, all processes live, and time passes until nothing is left to do.

use std::time::Duration;

use fsm_core::call::AttemptState;
use fsm_core::decide::operate::Act as Operating;
use fsm_core::time::Timestamp;

use crate::model::commit::INBOX;
use crate::model::promise::{Broken, Promise};
use crate::model::queue::key_index;
use crate::process::LEASE;
use crate::step::{Act, End, Ending, How, Step};
use crate::world::{PROCESSES, World};

/// The maximum number of rounds; no schedule needs that many.
pub const ROUNDS: usize = 2000;

/// Returns an error if a promise does not hold at rest, or if the world never comes to rest.
pub fn bring_to_rest(world: &mut World) -> Result<(), Broken> {
    end_faults(world)?;
    for _ in 0..ROUNDS {
        let mut has_worked = false;
        for p in 0..PROCESSES {
            has_worked |= renew_and_work(world, p)?;
        }
        if has_worked {
            continue;
        }
        replace_processes(world)?;
        if resume_one(world)? {
            continue;
        }
        let Some(wait) = next_moment(world) else { return world.model.ledger.check_at_rest(&world.model.store) };
        advance(world, wait)?;
    }
    never_comes_to_rest()
}

pub fn never_comes_to_rest() -> Result<(), Broken> {
    Promise::EverythingComesToRest.broken("the world does not come to rest")
}

/// Ends all faults, and lets all processes live.
pub fn end_faults(world: &mut World) -> Result<(), Broken> {
    while !world.adrift.is_empty() {
        world.step(&Step { process: 0, act: Act::Land { which: 0, commits: true } })?;
    }
    for act in [Act::DatabaseUp, Act::Wake, Act::Mend, Act::Start, Act::Skew { us: 0 }] {
        all(world, &act)?;
    }
    Ok(())
}

fn all(world: &mut World, act: &Act) -> Result<(), Broken> {
    (0..PROCESSES).try_for_each(|process| world.step(&Step { process, act: act.clone() }))
}

/// Lets one process renew its lease and do one piece of work. Returns whether it found any.
pub fn renew_and_work(world: &mut World, p: usize) -> Result<bool, Broken> {
    world.step(&Step { process: p, act: Act::Renew })?;
    work(world, p)
}

/// Replaces the processes that were shut down and have reported all attempts.
pub fn replace_processes(world: &mut World) -> Result<(), Broken> {
    for process in (0..PROCESSES).filter(|p| world.processes[*p].is_shutting_down).collect::<Vec<_>>() {
        world.step(&Step { process, act: Act::Crash { adrift: false } })?;
        world.step(&Step { process, act: Act::Start })?;
    }
    Ok(())
}

/// Resumes a paused instance. Returns whether there is one.
pub fn resume_one(world: &mut World) -> Result<bool, Broken> {
    let paused = world.model.store.instances.values().find(|instance| instance.paused && !instance.status.is_ended());
    let Some(key) = paused.map(|paused| key_index(&paused.key)) else { return Ok(false) };
    world.step(&Step { process: 0, act: Act::Operate { key, act: Operating::Resume, request_id: None } })?;
    Ok(true)
}

/// Lets this time pass.
pub fn advance(world: &mut World, wait: Duration) -> Result<(), Broken> {
    let us = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
    all(world, &Act::Advance { us: us / PROCESSES as i64 + 1 })
}

/// Lets one process do one piece of work that it finds. Returns whether it found any.
fn work(world: &mut World, p: usize) -> Result<bool, Broken> {
    let process = &world.processes[p];
    let now = world.clock(p);
    let act = if !process.commits_in_flight.is_empty() {
        Act::Finish { which: 0, end: End::Commits }
    } else if !process.queue.is_empty() {
        Act::Begin { most: 2, grants: true, how: How::AtOnce }
    } else if process.running.iter().any(|running| !running.has_ended) {
        Act::EndVerb { which: 0, outcome: Ending::Success { next: None, sends: Vec::new(), cancels: false }, own_tx: false }
    } else if !process.halves.is_empty() {
        Act::SecondHalf
    } else if !process.is_shutting_down && (!world.model.store.due(now, 1).is_empty() || !process.found.is_empty()) {
        Act::Claim { limit: 9, end: End::Commits }
    } else if !process.is_shutting_down && !world.model.store.due_timers(now).is_empty() {
        Act::LookForTimers
    } else if !process.is_shutting_down && !world.model.store.due_lines(now).is_empty() {
        Act::Deliver
    } else {
        for act in [Act::LookForIdleAttempts, Act::ReleaseIdleAttempts, Act::LookForOrphans, Act::Bury] {
            world.step(&Step { process: p, act })?;
        }
        return Ok(!world.processes[p].queue.is_empty());
    };
    world.step(&Step { process: p, act })?;
    Ok(true)
}

/// Returns the time until an attempt or timer is due, or a dead session may be swept.
pub fn next_moment(world: &World) -> Option<Duration> {
    let scheduled =
        world.model.store.live().filter(|live| live.state == AttemptState::Scheduled && !live.held).map(|live| live.scheduled_at);
    let timers = world.model.store.timers.values().filter(|(_, held)| !held).map(|(timer, _)| timer.due_at);
    let alive = |session| world.processes.iter().any(|process| process.life.id == session);
    let dead = world.model.store.live().filter_map(|live| live.worker).filter(|worker| !alive(*worker));
    let lapses = dead.map(|worker| world.model.store.sessions.get(&worker).copied().unwrap_or(world.now).max(world.now) + LEASE);
    // A full inbox may stay full: an operator has to act.
    let lines = world.model.store.outbox.iter().filter(|waiting| !world.model.store.has_no_room(&waiting.outgoing.key, INBOX));
    let lines = lines.filter_map(|waiting| waiting.due_at);
    let next: Option<Timestamp> = scheduled.chain(timers).chain(lapses).chain(lines).min();
    next.map(|next| next.since(world.now))
}

//! The background work of a process, mirroring `finder.rs`, `sweeper.rs`, `session.rs` and the graceful shutdown in `worker.rs`.

use std::sync::Arc;

use fsm_core::call::Attempt;
use fsm_core::commit::rows::{CachedSnapshot, RowVersion};
use fsm_core::ids::SessionId;
use fsm_core::outcome::{Outcome, Problem};
use fsm_core::process::{ProcessIdentity, ProcessLookup};
use fsm_core::retry::RetryAdvice;
use fsm_core::time::Timestamp;

use crate::model::promise::{Broken, Promise};
use crate::model::queue::{KEYS, Origin, Request, key_index};
use crate::model::variant::Variant;
use crate::process::{LEASE, Life, Process, Running};
use crate::step::End;
use crate::world::World;

fn namespaces(process: &ProcessIdentity) -> Option<&str> {
    process.place.as_ref().map(|place| place.namespaces.as_str())
}

impl World {
    /// `Engine::claim_due`.
    pub fn claim(&mut self, p: usize, limit: usize, end: End) -> Result<(), Broken> {
        let now = self.clock(p);
        let Some(session) = self.processes[p].session(now).filter(|_| !self.processes[p].is_shutting_down) else { return Ok(()) };
        let due = self.model.store.due(now, limit);
        let due = match self.model.variant {
            Variant::ReadThenClaim => std::mem::replace(&mut self.processes[p].found, due),
            _ => due,
        };
        if end == End::Fails {
            return Ok(());
        }
        for id in due {
            // Only an engine that claims in two statements comes too late for a row.
            if self.model.store.attempt(id).is_none() {
                continue;
            }
            let row = self.model.store.take(id, session, now, self.model.variant);
            self.model.is_dirty = true;
            if end == End::Commits {
                if !self.model.store.instances.contains_key(&row.attempt.instance) {
                    return Promise::NoRunWithoutAnInstance
                        .broken(format!("an attempt of `{}` is claimed, and is of no instance", row.attempt.verb));
                }
                let key = self.model.store.key_of(row.attempt.instance).to_owned();
                let seen = self.model.store.see(&key, RowVersion::Row);
                let cached = seen.and_then(|seen| CachedSnapshot::of(&Arc::clone(&seen.instance), Some(seen)));
                self.processes[p].cache[key_index(&key)] = cached;
                self.run(p, row.attempt, row.grant)?;
            }
        }
        Ok(())
    }

    /// `Engine::fire`.
    pub fn look_for_timers(&mut self, p: usize) {
        if self.processes[p].is_shutting_down {
            return;
        }
        for timer in self.model.store.due_timers(self.clock(p)) {
            let key = key_index(self.model.store.key_of(timer.instance));
            let request = Request::fire(&self.model.machine, key, timer);
            self.processes[p].queue.push(request);
        }
    }

    /// `Engine::deliver_due`.
    pub fn look_for_lines(&mut self, p: usize) {
        if self.processes[p].is_shutting_down {
            return;
        }
        for key in self.model.store.due_lines(self.clock(p)) {
            let line = self.model.store.line(KEYS[key]).map(|waiting| waiting.outgoing.clone()).collect();
            let request = Request::deliver(&self.model.machine, key, line);
            self.processes[p].queue.push(request);
        }
    }

    /// `Engine::end_sessions`: ends the sessions whose processes are gone. Their attempts are lost at once.
    pub fn take_over(&mut self, p: usize) -> Result<(), Broken> {
        let me = self.processes[p].home.clone();
        let is_blind = self.model.variant == Variant::TakeoverByPidAlone;
        let homes: Vec<_> = self.model.store.homes.iter().map(|(session, home)| (*session, home.clone())).collect();
        for (session, home) in homes {
            let seen_here = |pid: u32| {
                let runs = |other: &&Process| other.is_alive && other.home.pid == pid && namespaces(&other.home) == namespaces(&me);
                let found = self.processes.iter().find(runs).and_then(|other| other.home.place.as_ref());
                found.map_or(ProcessLookup::NoSuchProcess, |place| ProcessLookup::StartedAt(place.started))
            };
            let is_gone = if is_blind { seen_here(home.pid) == ProcessLookup::NoSuchProcess } else { home.is_gone(&me, seen_here) };
            if !is_gone {
                continue;
            }
            if self.processes.iter().any(|holder| holder.is_alive && holder.life.id == session && holder.life.is_known) {
                return Promise::LiveWorkerKeepsItsWork.broken(format!("{home} is alive, and its session is ended"));
            }
            self.model.store.homes.remove(&session);
            self.model.store.sessions.remove(&session);
        }
        for orphan in self.model.store.orphans(Timestamp::MIN) {
            self.settle_found(p, orphan, Outcome::Lost, Origin::Sweeper);
        }
        Ok(())
    }

    /// The first half of `Engine::compare_with_held`: reads the log, and notes the attempts that are held and not running.
    pub fn look_for_idle_attempts(&mut self, p: usize) {
        if self.model.variant != Variant::HeldButNotRunningStays {
            let (log, held) = self.model.store.read_log(self.processes[p].life.id);
            let process = &mut self.processes[p];
            process.log = log;
            process.executing = held.iter().map(|held| held.instance).collect();
            process.idle_attempts = held
                .into_iter()
                .filter(|held| !process.running.iter().any(|r| r.attempt.call == held.call && r.attempt.number == held.number))
                .collect();
        }
    }

    /// The second half: shortens the log by the rows that were read, and releases the attempts that are held and still not running. It
    /// waits until no commit is in progress.
    pub fn release_idle_attempts(&mut self, p: usize) {
        let (session, log) = (self.processes[p].life.id, std::mem::take(&mut self.processes[p].log));
        let mut executing = std::mem::take(&mut self.processes[p].executing);
        if self.model.variant == Variant::LogTrimmedTooEarly {
            executing.clear();
        }
        if self.is_up && !log.is_empty() {
            self.model.store.shorten_log(session, &log, executing);
            self.model.is_dirty = true;
        }
        if !self.processes[p].commits_in_flight.is_empty() {
            return;
        }
        for attempt in std::mem::take(&mut self.processes[p].idle_attempts) {
            if !self.processes[p].runs((attempt.call, attempt.number)) {
                self.settle_found(p, attempt, Outcome::Released, Origin::HeldButNotRunning);
            }
        }
    }

    /// `Engine::sweep`. A live process is never swept if only the database kept it from renewing its lease.
    pub fn look_for_orphans(&mut self, p: usize) -> Result<(), Broken> {
        if !self.may_sweep(p) {
            return Ok(());
        }
        for orphan in self.model.store.orphans(self.clock(p)) {
            let holder = self.processes.iter().find(|holder| holder.is_alive && Some(holder.life.id) == orphan.worker);
            if holder.is_some_and(|holder| !holder.is_disturbed) && !self.model.ledger.is_skewed {
                return Promise::LiveWorkerKeepsItsWork
                    .broken(format!("attempt {} of `{}` is swept, and its worker is alive and well", orphan.number, orphan.verb));
            }
            self.settle_found(p, orphan, Outcome::Lost, Origin::Sweeper);
        }
        Ok(())
    }

    /// `pruner.rs`: an ended instance is deleted. For a live one, only its row is written, as after deleting old history. An instance with
    /// an open request is kept, because retention is longer than any request.
    pub fn prune(&mut self, key: usize) {
        let Some(instance) = self.model.store.instance(KEYS[key]).filter(|_| self.locked() & (1 << key) == 0) else { return };
        let (id, is_ended) = (instance.id, instance.status.is_ended());
        self.model.is_dirty = true;
        if !is_ended {
            self.model.store.commits += 1;
            self.model.store.touch(id);
            return;
        }
        let mut under_way = self
            .processes
            .iter()
            .flat_map(|process| process.commits_in_flight.iter().flat_map(|commit| &commit.batch).chain(&process.queue));
        let is_asked = under_way.any(|request| request.request.tries > 0 && request.touches() & (1 << key) != 0);
        let is_adrift = self.adrift.iter().any(|(_, commit)| commit.touches & (1 << key) != 0);
        if !is_asked && !is_adrift && !self.model.store.timers.values().any(|(timer, _)| timer.instance == id) {
            let gone = self.model.store.prune(id);
            self.model.ledger.pruned.extend(gone);
        }
    }

    fn settle_found(&mut self, p: usize, attempt: Attempt, outcome: Outcome, origin: Origin) {
        let Some(instance) = self.model.store.instances.get(&attempt.instance) else { return };
        let key = key_index(&instance.key);
        self.report(p, key, (attempt, outcome), origin);
    }

    /// A report goes to the committer of the process.
    pub fn report(&mut self, p: usize, key: usize, (attempt, outcome): (Attempt, Outcome), origin: Origin) {
        let fresh = self.model.fresh();
        let request = Request::complete(&self.model.machine, key, attempt, outcome, origin, fresh);
        self.processes[p].queue.push(request);
    }

    /// `Session::may_sweep`.
    pub fn may_sweep(&self, p: usize) -> bool {
        let (now, life) = (self.clock(p), self.processes[p].life);
        match self.model.variant {
            Variant::SweepWithoutGrace => life.until > now,
            _ => self.is_in_time(life, now) && now.since(life.since) >= LEASE,
        }
    }

    fn is_in_time(&self, life: Life, now: Timestamp) -> bool {
        life.until > now && (self.model.variant == Variant::SweepOnALeaseThatSurvived || life.until.since(now) >= LEASE / 2)
    }

    /// `Session::renew`.
    pub fn renew(&mut self, p: usize) {
        let (now, life) = (self.clock(p), self.processes[p].life);
        let until = now + LEASE;
        if life.is_known && self.model.store.sessions.contains_key(&life.id) {
            let since = if self.is_in_time(life, now) { life.since } else { now };
            self.renewed(p, until, since);
            return;
        }
        self.processes[p].is_disturbed = false;
        self.processes[p].has_renewed = true;
        let id = if life.is_known { SessionId(self.model.fresh()) } else { life.id };
        self.model.store.sessions.insert(id, until);
        self.model.store.homes.insert(id, self.processes[p].home.clone());
        self.processes[p].life = Life { id, is_known: true, until, since: now };
    }

    /// `Engine::renew_beside`: a commit renews the lease of its process in its own transaction, if a renewal is due and the lease has not
    /// expired. On SQLite, a process that commits all the time renews only this way.
    pub fn renew_beside(&mut self, p: usize) {
        let (now, life) = (self.clock(p), self.processes[p].life);
        let is_due = life.is_known && life.until > now && life.until.since(now) < LEASE / 3 * 2;
        if is_due && self.model.store.sessions.contains_key(&life.id) {
            let is_in_time = self.model.variant == Variant::RenewedByACommitWithoutGrace || self.is_in_time(life, now);
            self.renewed(p, now + LEASE, if is_in_time { life.since } else { now });
        }
    }

    fn renewed(&mut self, p: usize, until: Timestamp, since: Timestamp) {
        let life = self.processes[p].life;
        self.model.store.sessions.insert(life.id, until);
        // The connection that renews may still hang when a commit has renewed the lease.
        self.processes[p].is_disturbed = self.processes[p].is_cut;
        self.processes[p].has_renewed = true;
        self.processes[p].life = Life { until, since, ..life };
    }

    /// `Engine::release_all`: releases the running attempts that can be retried, and fails the others, because they must not run again.
    pub fn shut_down(&mut self, p: usize) {
        self.processes[p].is_shutting_down = true;
        // The report of a verb that has ended is already on its way to the database.
        let running = self.processes[p].running.iter_mut().filter(|running| !running.has_ended);
        let end = |running: &mut Running| {
            running.has_ended = true;
            running.clone()
        };
        let left: Vec<_> = running.map(end).collect();
        for running in left {
            let failed = Problem { error: "its process was shut down".into(), advice: RetryAdvice::Never };
            let outcome = if running.attempt.retry_state.policy.is_some() { Outcome::Released } else { Outcome::Failure(failed) };
            self.report(p, running.key, (running.attempt, outcome), Origin::ShutDown);
        }
    }
}

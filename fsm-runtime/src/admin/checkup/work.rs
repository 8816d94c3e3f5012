//! The checks of `fsm doctor` on the work itself: dead workers, overdue attempts and timers, and ends of attempts that are not accepted.

use std::time::Duration;

use fsm_core::duration::display;
use fsm_core::time::Timestamp;
use fsm_store::claim::{Served, Which, claimable, may_be_a_rows};
use fsm_store::overview::{self, ToCome};
use fsm_store::partition_outbox::Backlog;
use fsm_store::workers::Worker;

use super::{FEW, Finding, Level, MOST, counted};
use crate::admin::Admin;
use crate::engine::Work;
use crate::error::Error;

/// Attempts and timers that are due for longer than this are reported.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The number of overdue attempts of each machine whose claim is tried.
const TRIED: u32 = 20;
/// The maximum number of unreported attempts that are named.
const NAMED: usize = 20;

impl Admin {
    pub(super) async fn work(&self) -> Result<Vec<Finding>, Error> {
        let now = self.now();
        let (alive, dead): (Vec<Worker>, Vec<Worker>) = self.workers().await?.into_iter().partition(|worker| worker.lease_until > now);
        let mut findings = Vec::new();
        for worker in &dead {
            let then = match (worker.executing, alive.len()) {
                (0, _) => String::new(),
                (n, 0) => {
                    format!(" and holds {n} attempts: no worker is alive that could take them over, and nothing happens until one starts")
                }
                (n, _) => format!(" and holds {n} attempts: a live worker of their machines closes them as lost"),
            };
            let ended = display(Duration::from_secs(now.since(worker.lease_until).as_secs()));
            let says = format!(
                "the lease of session {}, process {} on `{}`, ended {ended} ago, at {}{then}",
                worker.session, worker.pid, worker.host, worker.lease_until
            );
            findings.push(Finding::new(Level::Warning, "workers", says));
        }
        let mut is_late = false;
        for known in self.machines() {
            let overdue = self.overdue(&known.machine.name, MOST).await?;
            let Some(since) = overdue.since.filter(|since| now.since(*since) > PATIENCE) else { continue };
            is_late = true;
            let count = counted(overdue.attempts);
            let why =
                if alive.is_empty() { "no worker is alive" } else { "those that are alive are at their limit or do not have its verbs" };
            let says = format!("{count} attempts of `{}` are due, the first since {since}: {why}", known.machine.name);
            findings.push(Finding::new(Level::Warning, "workers", says));
        }
        for late in [self.overdue_timers(now, alive.is_empty()).await?, self.unreported(&alive), self.unclaimable(now - PATIENCE).await?] {
            is_late |= !late.is_empty();
            findings.extend(late);
        }
        if dead.is_empty() && !is_late {
            findings.push(Finding::new(Level::Ok, "workers", format!("{} live, and nothing is late", alive.len())));
        }
        Ok(findings)
    }

    /// Events that wait for instances of other partitions.
    pub(super) async fn events_for_partitions(&self) -> Result<Vec<Finding>, Error> {
        let look = async || self.engine.backlog_for_partitions(&mut self.engine.store.reader().await?.conn(), MOST).await;
        let found = self.engine.read(look).await?.into_iter().map(|Backlog { partition, events, since }| {
            let is_late = self.now().since(since) > PATIENCE;
            let why = if is_late { ": it cannot be reached, no worker is alive, or the inboxes of their receivers are full" } else { "" };
            let says = format!("{} events wait for instances of partition {partition}, the first since {since}{why}", counted(events));
            Finding::new(if is_late { Level::Warning } else { Level::Ok }, "outbox", says)
        });
        Ok(found.collect())
    }

    /// Receivers whose inbox has had no room for long. Events to them wait in the outbox.
    pub(super) async fn full_inboxes_found(&self) -> Result<Vec<Finding>, Error> {
        let (mut findings, now) = (Vec::new(), self.now());
        for known in self.machines() {
            let machine = &known.machine.name;
            let full = self.full_inboxes(machine, FEW).await?;
            let Some(first) = full.iter().min_by_key(|one| one.since) else { continue };
            let events: u64 = full.iter().map(|one| one.events).sum();
            let says = format!(
                "{events} events of the outbox wait for room in the inboxes of {} instances of `{machine}`, the first since {} for `{}`, which \
                 has {} events in its inbox",
                full.len(),
                first.since,
                first.key.escape_debug(),
                first.inbox_len
            );
            let level = if now.since(first.since) > PATIENCE { Level::Warning } else { Level::Ok };
            findings.push(Finding::new(level, "outbox", says));
        }
        Ok(findings)
    }

    /// Overdue timers of each machine: their number, and the first one by name.
    async fn overdue_timers(&self, now: Timestamp, is_nobody_alive: bool) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let machine = known.machine.name.as_str();
            let look = async || {
                let mut reader = self.engine.store.reader().await?;
                let counts = overview::overdue_timers(&mut reader.conn(), machine, now, MOST).await?;
                Ok((counts, overview::first_timer(&mut reader.conn(), machine).await?))
            };
            let ((count, since), first) = self.engine.read(look).await?;
            let Some(since) = since.filter(|since| now.since(*since) > PATIENCE) else { continue };
            let first = first.map_or_else(String::new, |first| {
                let what = match &first.what {
                    ToCome::Event { state: Some(state), .. } => format!("of the state `{state}`"),
                    ToCome::Event { event, .. } => format!("that delivers `{event}`"),
                    ToCome::Attempt { .. } | ToCome::Lapsed { .. } => "of an attempt".to_owned(),
                };
                format!(", {what} of `{}`", first.key.escape_debug())
            });
            let why = if is_nobody_alive {
                "no worker is alive"
            } else {
                "they fail, their instances are locked, or no live worker has their states or events; the workers' logs say which"
            };
            let says = format!("{} timers of `{machine}` are due, the first since {since}{first}: {why}", counted(count));
            findings.push(Finding::new(Level::Warning, "timers", says));
        }
        Ok(findings)
    }

    /// Attempts that have ended and whose ends the database does not accept. Those of this process are named, those of others are counted.
    fn unreported(&self, alive: &[Worker]) -> Vec<Finding> {
        let own = self.engine.work.as_ref().map(Work::unreported).unwrap_or_default();
        let own_session = self.engine.work.as_ref().map(|work| work.session.id());
        let named = own.iter().take(NAMED).map(|one| {
            let (machine, key) = (&one.machine, one.key.escape_debug());
            let says = format!(
                "attempt {} of `{}` of `{machine}` `{key}` has ended, and the database has not accepted that after {} tries: {}",
                one.attempt, one.verb, one.tries, one.error
            );
            Finding::new(Level::Error, "unreported", says)
        });
        let others = alive.iter().filter(|worker| worker.unreported > 0 && Some(worker.session) != own_session).map(|worker| {
            let says = format!(
                "{} attempts have ended in process {} on `{}`, and the database does not accept their ends; the log of that process names them",
                worker.unreported, worker.pid, worker.host
            );
            Finding::new(Level::Error, "unreported", says)
        });
        named.chain(others).collect()
    }

    /// Overdue attempts that cannot be claimed, each by name. The claims of the oldest ones are tried and rolled back.
    async fn unclaimable(&self, until: Timestamp) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let served = Served::of(&known.machine);
            let store = &self.engine.store;
            let due = claimable(&mut store.reader().await?.conn(), &served, TRIED, until, Which::AllBut(&[])).await?;
            for (due, key) in due {
                match store.try_claim(&served, until, due.instance).await {
                    Err(error) if may_be_a_rows(&error) => {
                        let key = key.map_or("an instance that cannot be read".to_owned(), |key| format!("`{}`", key.escape_debug()));
                        let call = due.call;
                        let says = format!("an attempt of `{}` {key}, call {call}, cannot be claimed: {error}", known.machine.name);
                        findings.push(Finding::new(Level::Error, "stuck", says));
                    }
                    Ok(()) => {}
                    // A connection without the right to write cannot try a claim.
                    Err(_) => return Ok(findings),
                }
            }
        }
        Ok(findings)
    }
}

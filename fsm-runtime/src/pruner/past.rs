//! Deletes old history of live instances: attempts, notes and dedup ids that are older than the retention time and that the instance does
//! not need.
//!
//! Each table is read in the order of its key, a few rows at a time, and again from its beginning after its end. The cost of a run
//! therefore does not depend on the number of rows.

use std::collections::{BTreeMap, HashMap, HashSet};

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::lock;
use fsm_store::prune::{self, AttemptPlace, OncePlace, RequestPlace};
use uuid::Uuid;

use super::{IN_VAIN, Pruner, PrunerPosition, StepSize};

/// The number of memoised effects that one step deletes of a call with very many.
const LEAST_ONCE: u32 = 50;

/// The number of rows that a step deleted, and true if it reached the end of the table.
type Stepped = (usize, bool);

impl Pruner<'_> {
    /// Deletes old rows of each table, starting at `place`, until several reads in a row find none to delete.
    pub(super) async fn prune_past(self, place: &mut PrunerPosition, machines: &[&str]) -> Result<usize, StoreError> {
        let mut pruned = 0;
        let mut in_vain = 0;
        while in_vain < IN_VAIN {
            let (count, is_end) = self.prune_attempts(&mut place.attempts, machines, &mut place.step_size).await?;
            pruned += count;
            in_vain = if count > 0 { 0 } else { in_vain + 1 };
            if is_end {
                place.attempts = PrunerPosition::default().attempts;
                break;
            }
        }
        // Notes and dedup ids are deleted after the calls that they refer to.
        for _ in 0..IN_VAIN {
            let (notes, no_more_notes) = self.prune_notes(&mut place.notes, machines, &mut place.step_size).await?;
            let (requests, no_more_requests) = self.prune_requests(&mut place.requests, machines, &mut place.step_size).await?;
            let (once, no_more_once) = self.prune_once(&mut place.once, machines, &mut place.step_size).await?;
            pruned += notes + requests + once;
            if no_more_notes && no_more_requests && no_more_once {
                break;
            }
        }
        Ok(pruned)
    }

    async fn prune_attempts(self, place: &mut AttemptPlace, machines: &[&str], step_size: &mut StepSize) -> Result<Stepped, StoreError> {
        let most = step_size.rows();
        let mut found = {
            let mut reader = self.store.reader().await?;
            prune::old_attempts(&mut reader.conn(), *place, self.cutoff, most).await?
        };
        let Some(last) = found.last().map(|last| last.call) else { return Ok((0, true)) };
        let is_end = found.len() < most as usize;
        // The last call may continue after this read. It is left for the next read, unless it is longer than one read.
        if !is_end && found[0].call != last {
            found.retain(|attempt| attempt.call != last);
        }
        *place = found.last().map_or(*place, |last| (last.call, last.number));
        let is_served = |attempt: &Attempt| machines.contains(&attempt.machine.as_str());
        let is_old = |attempt: &Attempt| attempt.finished_at.is_some_and(|end| end < self.cutoff);
        let old: Vec<_> = found.into_iter().filter(|attempt| is_served(attempt) && is_old(attempt)).collect();
        if old.is_empty() {
            return Ok((0, is_end));
        }
        match self.forget(&old, step_size).await {
            // `place` is already behind these rows, so an error does not stop the deletion of others.
            Err(error) if !error.is_transient() || error.is_locked() => {
                let from = old.first().map(|attempt| attempt.call.to_string());
                tracing::warn!(from, %error, "attempts older than the retention could not be deleted and are tried again");
                Ok((0, is_end))
            }
            done => Ok((done?, is_end)),
        }
    }

    /// Deletes those of these attempts that are not needed.
    async fn forget(self, old: &[Attempt], step_size: &mut StepSize) -> Result<usize, StoreError> {
        loop {
            let most = u64::from(step_size.rows());
            // The calls whose memoised effects must be deleted first, because there are more of them than one step deletes.
            let mut crowded = Vec::new();
            let count = self
                .step(step_size, async |conn| {
                    let Forgotten { attempts, calls, transitions } = Past::read(conn, old, self.cutoff).await?.forgotten(old);
                    let once = prune::once_counts(conn, &calls).await?;
                    if once.iter().map(|(_, count)| count).sum::<u64>() > most {
                        crowded = once.into_iter().filter(|(_, count)| *count > 0).map(|(call, _)| call).collect();
                        return Ok(0);
                    }
                    let count = attempts.len() + calls.len();
                    if count > 0 {
                        prune::forget(conn, &attempts, &calls, transitions.into_iter()).await?;
                        tracing::debug!(
                            attempts = attempts.len(),
                            calls = calls.len(),
                            "deleted the past that the retention does not keep"
                        );
                    }
                    Ok(count)
                })
                .await?;
            if crowded.is_empty() {
                return Ok(count);
            }
            for call in crowded {
                while self
                    .step(step_size, async |conn| Ok(prune::some_once(conn, call, LEAST_ONCE).await? == u64::from(LEAST_ONCE)))
                    .await?
                {}
            }
        }
    }

    async fn prune_notes(self, place: &mut i64, machines: &[&str], step_size: &mut StepSize) -> Result<Stepped, StoreError> {
        let until = prune::notes_until(&mut self.store.reader().await?.conn(), *place, step_size.rows()).await?;
        let Some(until) = until else {
            *place = 0;
            return Ok((0, true));
        };
        let after = std::mem::replace(place, until);
        let pruned = self
            .step(step_size, async |conn| {
                let mut pruned = 0;
                for machine in machines {
                    pruned += prune::notes(conn, machine, self.cutoff, after, until).await?;
                }
                Ok(pruned)
            })
            .await?;
        Ok((pruned, false))
    }

    async fn prune_requests(self, place: &mut RequestPlace, machines: &[&str], step_size: &mut StepSize) -> Result<Stepped, StoreError> {
        let until = prune::requests_until(&mut self.store.reader().await?.conn(), place, step_size.rows()).await?;
        let is_end = until.is_none();
        // No id is larger than this one.
        let until = until.unwrap_or((InstanceId(Uuid::max()), "\u{10ffff}".to_owned()));
        let after = std::mem::replace(place, if is_end { PrunerPosition::default().requests } else { until.clone() });
        let pruned = self
            .step(step_size, async |conn| {
                let mut pruned = 0;
                for machine in machines {
                    pruned += prune::requests(conn, machine, self.cutoff, &after, &until).await?;
                }
                Ok(pruned)
            })
            .await?;
        Ok((pruned, is_end))
    }

    async fn prune_once(self, place: &mut OncePlace, machines: &[&str], step_size: &mut StepSize) -> Result<Stepped, StoreError> {
        let until = prune::once_until(&mut self.store.reader().await?.conn(), place, self.cutoff, step_size.rows()).await?;
        let is_end = until.is_none();
        let after = std::mem::replace(place, until.clone().unwrap_or(PrunerPosition::default().once));
        let pruned = self
            .step(step_size, async |conn| {
                let mut pruned = 0;
                for machine in machines {
                    pruned += prune::once_old(conn, machine, self.cutoff, &after, until.as_ref()).await?;
                }
                Ok(pruned)
            })
            .await?;
        Ok((pruned, is_end))
    }
}

/// The rows that a step deletes.
#[derive(Default)]
struct Forgotten {
    /// Attempts between the first and the last two of a call that is kept, or that is too long for one step.
    attempts: Vec<AttemptPlace>,
    /// Whole calls.
    calls: Vec<CallId>,
    /// The number of deleted transitions of each instance.
    transitions: BTreeMap<InstanceId, i64>,
}

/// The data that decides which old attempts can be deleted. It is read under the locks of their instances.
struct Past {
    cutoff: Timestamp,
    /// The instances that still exist.
    instances: HashMap<InstanceId, Instance>,
    /// Calls that may run again, so that they are kept at any age.
    needed: HashSet<CallId>,
    /// The last attempt of each call.
    last: HashMap<CallId, Attempt>,
    /// The attempts that were read.
    seen: HashSet<AttemptPlace>,
    /// Predecessors of these calls that still exist.
    there: HashSet<CallId>,
}

impl Past {
    async fn read(conn: &mut Conn<'_>, old: &[Attempt], cutoff: Timestamp) -> Result<Past, StoreError> {
        let mut ids: Vec<_> = old.iter().map(|attempt| attempt.instance).collect();
        ids.sort();
        ids.dedup();
        let found = lock::instances_by_id(conn, &ids).await?;
        let newest: Vec<_> = found.iter().flatten().filter_map(|(_, newest)| newest.as_ref()).collect();
        let mut needed: HashSet<CallId> = newest.iter().map(|newest| newest.call).collect();
        // An operator can run a caught call again.
        needed.extend(newest.iter().filter(|newest| newest.is_catch()).filter_map(|newest| newest.previous));
        let instances: HashMap<_, _> = found.into_iter().flatten().map(|(instance, _)| (instance.id, instance)).collect();
        let calls: HashSet<_> = old.iter().map(|attempt| attempt.call).collect();
        let last = lock::last_attempts(conn, &calls.iter().copied().collect::<Vec<_>>()).await?;
        let before: HashSet<_> = old.iter().filter(|attempt| attempt.number == 1).filter_map(|attempt| attempt.previous).collect();
        let before: Vec<_> = before.into_iter().map(|call| (call, 1)).collect();
        let there = lock::attempts(conn, &before).await?.into_iter().map(|attempt| attempt.call).collect();
        let last = last.into_iter().map(|last| (last.call, last)).collect();
        let seen = old.iter().map(|attempt| (attempt.call, attempt.number)).collect();
        Ok(Past { cutoff, instances, needed, last, seen, there })
    }

    /// Selects the rows to delete. A call is deleted only after the call before it, so that the kept calls are an unbroken chain up to the
    /// newest.
    fn forgotten(&self, old: &[Attempt]) -> Forgotten {
        let mut forgotten = Forgotten::default();
        let mut gone = HashSet::new();
        let mut firsts: Vec<_> = old.iter().filter(|attempt| attempt.number == 1 && self.may_go(attempt)).collect();
        loop {
            let count = firsts.len();
            firsts.retain(|first| {
                let is_held = first.previous.is_some_and(|before| self.there.contains(&before) && !gone.contains(&before));
                if !is_held {
                    gone.insert(first.call);
                    forgotten.calls.push(first.call);
                    if let Some(made) = self.last.get(&first.call).filter(|last| last.state == AttemptState::Success && !last.is_catch()) {
                        *forgotten.transitions.entry(made.instance).or_default() += 1;
                    }
                }
                is_held
            });
            if firsts.len() == count {
                break;
            }
        }
        let is_between = |attempt: &&Attempt| {
            let last = self.last.get(&attempt.call).map_or(0, |last| last.number);
            self.is_of_the_past(attempt.instance) && attempt.number > 1 && attempt.number + 1 < last && !gone.contains(&attempt.call)
        };
        forgotten.attempts = old.iter().filter(is_between).map(|attempt| (attempt.call, attempt.number)).collect();
        forgotten
    }

    /// Returns true if the call of this first attempt has ended, is old and not needed, and was read completely, so that one step can
    /// delete it.
    fn may_go(&self, first: &Attempt) -> bool {
        let Some(last) = self.last.get(&first.call) else { return false };
        let is_old = last.finished_at.is_some_and(|end| end < self.cutoff);
        is_old && self.is_of_the_past(first.instance) && !self.needed.contains(&first.call) && self.seen.contains(&(last.call, last.number))
    }

    /// Returns true if the instance is live or no longer exists. An ended instance is deleted as a whole by another function.
    fn is_of_the_past(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_none_or(|instance| !instance.status.is_ended())
    }
}

//! The past of live instances: attempts, notes and requests older than the retention go, but for what an instance may yet need.
//!
//! Each table is walked through in the order of its key, some rows at a time, and from its beginning again after its end: a look costs the
//! same however much is kept.

use std::collections::{BTreeMap, HashMap, HashSet};

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::BREATH;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::claim::Served;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::prune::{self, AttemptPlace, RequestPlace};
use crate::store::{lock, tx::Tx};

/// How many rows one transaction looks at.
const AT_A_TIME: u32 = 500;
/// How many transactions of a look may find nothing to delete.
const IN_VAIN: u32 = 40;

/// How far each walk has come.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    attempts: AttemptPlace,
    notes: i64,
    requests: RequestPlace,
}

impl Default for Place {
    fn default() -> Place {
        let nil = Uuid::nil();
        Place { attempts: (CallId(nil), 0), notes: 0, requests: (InstanceId(nil), String::new()) }
    }
}

/// How much a step deleted, and whether it was the last one of its walk.
type Stepped = (usize, bool);

impl Engine {
    /// Walks on from `place`, through each table as long as there is something to delete, and a little further.
    pub(super) async fn prune_past(&self, place: &mut Place, served: &[Served], cutoff: Timestamp) -> Result<usize, Error> {
        let mut pruned = 0;
        let mut in_vain = 0;
        while in_vain < IN_VAIN {
            let (count, is_end) = self.prune_attempts(&mut place.attempts, served, cutoff).await?;
            pruned += count;
            in_vain = if count > 0 { 0 } else { in_vain + 1 };
            if is_end {
                place.attempts = Place::default().attempts;
                break;
            }
            tokio::time::sleep(BREATH).await;
        }
        // Notes and requests go once the calls that they are about have gone.
        for _ in 0..IN_VAIN {
            let (notes, no_more_notes) = self.prune_notes(&mut place.notes, served, cutoff).await?;
            let (requests, no_more_requests) = self.prune_requests(&mut place.requests, served, cutoff).await?;
            pruned += notes + requests;
            if no_more_notes && no_more_requests {
                break;
            }
            tokio::time::sleep(BREATH).await;
        }
        Ok(pruned)
    }

    async fn prune_attempts(&self, place: &mut AttemptPlace, served: &[Served], cutoff: Timestamp) -> Result<Stepped, Error> {
        let mut found = {
            let mut reader = self.store.reader().await?;
            prune::old_attempts(&mut reader.conn(), *place, cutoff, AT_A_TIME).await?
        };
        let Some(last) = found.last().map(|last| last.call) else { return Ok((0, true)) };
        let is_end = found.len() < AT_A_TIME as usize;
        // A call that may not be whole here is looked at with the next ones, unless it is longer than a look.
        if !is_end && found[0].call != last {
            found.retain(|attempt| attempt.call != last);
        }
        *place = found.last().map_or(*place, |last| (last.call, last.number));
        let is_served = |attempt: &Attempt| served.iter().any(|served| served.machine == attempt.machine);
        let is_old = |attempt: &Attempt| attempt.finished_at.is_some_and(|end| end < cutoff);
        let old: Vec<_> = found.into_iter().filter(|attempt| is_served(attempt) && is_old(attempt)).collect();
        if old.is_empty() {
            return Ok((0, is_end));
        }
        let mut tx = self.store.begin().await?;
        let forgotten = Past::read(&mut tx.conn(), &old, cutoff).await?.forgotten(&old);
        Ok((forget(tx, forgotten).await?, is_end))
    }

    async fn prune_notes(&self, place: &mut i64, served: &[Served], cutoff: Timestamp) -> Result<Stepped, Error> {
        let until = prune::notes_until(&mut self.store.reader().await?.conn(), *place, AT_A_TIME).await?;
        let Some(until) = until else {
            *place = 0;
            return Ok((0, true));
        };
        let mut tx = self.store.begin().await?;
        let mut pruned = 0;
        for served in served {
            pruned += prune::notes(&mut tx.conn(), &served.machine, cutoff, *place, until).await?;
        }
        tx.commit().await?;
        *place = until;
        Ok((pruned, false))
    }

    async fn prune_requests(&self, place: &mut RequestPlace, served: &[Served], cutoff: Timestamp) -> Result<Stepped, Error> {
        let until = prune::requests_until(&mut self.store.reader().await?.conn(), place, AT_A_TIME).await?;
        let is_end = until.is_none();
        // Nothing comes after the last of all ids.
        let until = until.unwrap_or((InstanceId(Uuid::max()), "\u{10ffff}".to_owned()));
        let mut tx = self.store.begin().await?;
        let mut pruned = 0;
        for served in served {
            pruned += prune::requests(&mut tx.conn(), &served.machine, cutoff, place, &until).await?;
        }
        tx.commit().await?;
        *place = if is_end { Place::default().requests } else { until };
        Ok((pruned, is_end))
    }
}

/// What is to be deleted.
#[derive(Default)]
struct Forgotten {
    /// Attempts between the first and the last two of calls that are kept, or too long to go at once.
    attempts: Vec<AttemptPlace>,
    /// Whole calls.
    calls: Vec<CallId>,
    /// How many of an instance's transitions these made.
    transitions: BTreeMap<InstanceId, i64>,
}

async fn forget(mut tx: Tx, forgotten: Forgotten) -> Result<usize, Error> {
    let Forgotten { attempts, calls, transitions } = forgotten;
    let count = attempts.len() + calls.len();
    if count == 0 {
        tx.rollback().await?;
        return Ok(0);
    }
    prune::forget(&mut tx.conn(), &attempts, &calls, transitions.into_iter()).await?;
    tx.commit().await?;
    tracing::debug!(attempts = attempts.len(), calls = calls.len(), "deleted the past that the retention does not keep");
    Ok(count)
}

/// What must be known of old attempts to tell which may go, read under the locks of their instances.
struct Past {
    cutoff: Timestamp,
    /// The instances that there still are.
    instances: HashMap<InstanceId, Instance>,
    /// Calls that may be run again, whatever their age.
    needed: HashSet<CallId>,
    /// The last attempt of each call.
    last: HashMap<CallId, Attempt>,
    /// The attempts that are looked at.
    seen: HashSet<AttemptPlace>,
    /// Calls before these that are still there.
    there: HashSet<CallId>,
}

impl Past {
    async fn read(conn: &mut Conn<'_>, old: &[Attempt], cutoff: Timestamp) -> Result<Past, StoreError> {
        let mut ids: Vec<_> = old.iter().map(|attempt| attempt.instance).collect();
        ids.sort();
        ids.dedup();
        let found = lock::instances_by_id(conn, &ids).await?;
        let instances: HashMap<_, _> = found.into_iter().flatten().map(|instance| (instance.id, instance)).collect();
        let newest: Vec<_> = instances.values().filter_map(|instance| instance.newest).collect();
        let mut needed: HashSet<CallId> = newest.iter().map(|(call, _)| *call).collect();
        // A call that was caught may be run again by hand.
        needed.extend(lock::attempts(conn, &newest).await?.iter().filter(|newest| newest.is_catch()).filter_map(|newest| newest.previous));
        let calls: HashSet<_> = old.iter().map(|attempt| attempt.call).collect();
        let last = lock::last_attempts(conn, &calls.iter().copied().collect::<Vec<_>>()).await?;
        let before: HashSet<_> = old.iter().filter(|attempt| attempt.number == 1).filter_map(|attempt| attempt.previous).collect();
        let before: Vec<_> = before.into_iter().map(|call| (call, 1)).collect();
        let there = lock::attempts(conn, &before).await?.into_iter().map(|attempt| attempt.call).collect();
        let last = last.into_iter().map(|last| (last.call, last)).collect();
        let seen = old.iter().map(|attempt| (attempt.call, attempt.number)).collect();
        Ok(Past { cutoff, instances, needed, last, seen, there })
    }

    /// What of these attempts may go. A call goes when the one before it has gone, so that what is kept is an unbroken chain to the newest.
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
            self.lives(attempt.instance) && attempt.number > 1 && attempt.number + 1 < last && !gone.contains(&attempt.call)
        };
        forgotten.attempts = old.iter().filter(is_between).map(|attempt| (attempt.call, attempt.number)).collect();
        forgotten
    }

    /// Whether the call of this first attempt is over, old and not needed, and all of it is looked at: it is short enough to go at once.
    fn may_go(&self, first: &Attempt) -> bool {
        let Some(last) = self.last.get(&first.call) else { return false };
        let is_old = last.finished_at.is_some_and(|end| end < self.cutoff);
        // What an instance left behind that has gone goes too.
        let is_of_the_past = self.lives(first.instance) || !self.instances.contains_key(&first.instance);
        is_old && is_of_the_past && !self.needed.contains(&first.call) && self.seen.contains(&(last.call, last.number))
    }

    fn lives(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance).is_some_and(|instance| !instance.status.is_ended())
    }
}

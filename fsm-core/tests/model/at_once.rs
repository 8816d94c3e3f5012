//! The trip of a small batch without a lock, mirroring `Board::see`, `Trip::at_once` and `store/write/at_once.rs`: a look, a decision and one
//! guarded statement, between any two of which others commit.

use fsm_core::changes::{Changes, Payload, TimerChange};
use fsm_core::decide::inbox::Unread;
use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;

use super::Model;
use super::queue::{Board, KEYS, Reply, Request, Seen, Trip, Way, What};
use super::trip::Verdict;
use super::variant::Variant;

impl Model {
    /// The rows of the instances, as they are or as they are remembered, and nothing beside them yet.
    pub fn look(&mut self, batch: Vec<Request>, now: Timestamp, grant: Option<SessionId>) -> Trip {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let mut board = Board { standings: Default::default(), known: Vec::new() };
        let mut stamps = [None; KEYS.len()];
        for request in &batch {
            let now_there = self.store.see(KEYS[request.key]);
            let fresh_stamp = now_there.as_ref().map(|seen| seen.stamp);
            let seen = request.memory().cloned().or(now_there);
            stamps[request.key] = seen.as_ref().map(|seen| seen.stamp);
            if self.variant == Variant::MemoryKept {
                stamps[request.key] = fresh_stamp;
            }
            board.standings[request.key] = Some(self.standing(request.key, seen, now));
        }
        let refused = batch.iter().filter(|request| self.refuses(request, now)).fold(0, |refused, request| refused | 1 << request.key);
        Trip { now, grant, batch, decided: Vec::new(), board, touches, locks: 0, refused, way: Way::AtOnce(stamps) }
    }

    /// Whether the sender would be refused who came alone.
    fn refuses(&mut self, request: &Request, now: Timestamp) -> bool {
        matches!(request.what, What::Send(_)) && self.set_out(vec![request.clone()], now, None).decided[0].reply == Reply::Refused
    }

    /// What is beside the rows is read, each by a statement of its own, and all is decided. `false` when that needs locks. An error is a
    /// sender who was refused and would not have been, neither at the look nor now: nothing that is written guards his answer.
    pub fn decide_at_once(&mut self, trip: &mut Trip) -> Result<bool, String> {
        for request in &trip.batch {
            if let Some(standing) = trip.board.standings[request.key].as_mut().filter(|standing| !standing.is_new) {
                self.read_rest(standing, Some(request));
                if self.variant == Variant::TornInbox && standing.inbox.outlook.is_none() {
                    standing.instance.inbox_head = standing.instance.inbox_tail - standing.inbox.first.len() as i64;
                }
            }
        }
        let Ok(decided) = trip.batch.iter().map(|request| self.decide(trip, request)).collect::<Result<Vec<_>, Unread>>() else {
            return Ok(false);
        };
        for (request, decided) in trip.batch.iter().zip(&decided) {
            let is_refused = decided.reply == Reply::Refused && trip.refused & (1 << request.key) == 0;
            if is_refused && !self.refuses(request, trip.now) {
                return Err(format!("a sender to `{}` is refused, and no moment is why", KEYS[request.key]));
            }
        }
        if let (Variant::StampReadLater, Way::AtOnce(stamps)) = (self.variant, &mut trip.way) {
            *stamps = KEYS.map(|key| self.store.see(key).map(|seen| seen.stamp));
        }
        trip.decided = decided;
        Ok(trip.decided.iter().filter_map(|decided| decided.changes.as_ref()).all(fits))
    }

    /// `write_at_once`. `None`, and nothing is written, when one guard fails. These instances are `locked` by others.
    pub fn commit_at_once(&mut self, trip: &mut Trip, locked: u8) -> Result<Option<Vec<Verdict>>, String> {
        let Way::AtOnce(stamps) = trip.way else { return Ok(None) };
        let decided = std::mem::take(&mut trip.decided);
        let holds: Vec<bool> = (trip.batch.iter().zip(&decided))
            .map(|(request, decided)| {
                let is_locked = locked & (1 << request.key) != 0;
                decided.changes.as_ref().is_none_or(|changes| self.is_as_seen(trip, request.key, changes, stamps[request.key], is_locked))
            })
            .collect();
        let is_good = match self.variant {
            Variant::HalfOfABatch => holds.contains(&true),
            _ => !holds.contains(&false),
        };
        if !is_good {
            return Ok(None);
        }
        self.store.commits += 1;
        let mut verdicts = Vec::new();
        for (n, (decided, holds)) in decided.into_iter().zip(holds).enumerate() {
            let request = trip.batch[n].clone();
            let mut verdict = match holds {
                true => self.write_one(trip, request.key, Some(&request), decided)?,
                false => Verdict::of(decided.reply),
            };
            let standing = trip.standing(request.key);
            for run in verdict.runs.iter_mut().filter(|_| standing.instance.inbox_len() == 0) {
                let (instance, has_timer) = (standing.instance.clone(), standing.has_timer);
                run.memory = Some(Seen { instance, has_timer, stamp: self.store.commits });
            }
            verdicts.push(verdict);
        }
        self.is_dirty = true;
        Ok(Some(verdicts))
    }

    /// The guards of one member.
    fn is_as_seen(&self, trip: &Trip, key: usize, changes: &Changes, stamp: Option<u64>, is_locked: bool) -> bool {
        let id = changes.instance.id;
        let is_same = match self.variant {
            Variant::StampNotCompared => self.store.instances.contains_key(&id),
            Variant::VersionForAStamp => {
                self.store.instances.get(&id).is_some_and(|instance| instance.version == trip.standing(key).instance.version)
            }
            _ => self.store.stamps.get(&id).copied() == stamp,
        };
        let is_free = !is_locked || self.variant == Variant::StampWithoutLock;
        (changes.is_new || (is_same && is_free)) && self.store.guards_hold(changes, trip.variant(self.variant))
    }
}

impl Trip {
    /// Nothing is decided yet.
    pub fn is_undecided(&self) -> bool {
        matches!(self.way, Way::AtOnce(_)) && self.decided.is_empty()
    }

    /// The mistake, if it is one that this way makes.
    pub fn variant(&self, variant: Variant) -> Variant {
        match (&self.way, variant) {
            (Way::Locked, Variant::KeyWithoutGuard) => Variant::True,
            (_, variant) => variant,
        }
    }
}

/// `fits` of `store/write/at_once.rs`.
fn fits(changes: &Changes) -> bool {
    let payload = changes.open.as_ref().and_then(|open| open.payload.as_ref());
    payload.is_none_or(|payload| matches!(payload, Payload::Bytes(_)))
        && changes.timers.iter().all(|change| matches!(change, TimerChange::Set(_) | TimerChange::Clear))
        && changes.hold.is_none()
        && changes.budget.is_none()
        && changes.inbox_taken.is_none()
        && !changes.is_outlook_lost
}

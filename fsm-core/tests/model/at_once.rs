//! The optimistic commit of a small batch, mirroring `BatchSnapshot::see`, `BatchCommit::{single_statement,speculation}`,
//! `store/write/single_statement.rs` and `store/file_version.rs`: a read, a decision and a guarded write. Other processes commit between
//! any two of them.

use fsm_core::changes::{Changes, Payload, TimerChange};
use fsm_core::decide::InstanceSnapshot;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;

use super::Model;
use super::promise::{Broken, Promise};
use super::queue::{Board, Decided, KEYS, Reply, Request, Seen, Trip, Way};
use super::trip::Verdict;
use super::variant::Variant;

impl Model {
    /// Reads the rows of the instances, or takes them from the snapshot cache. The attempts and the inboxes are not read yet. With an
    /// `epoch`, the file version guards the batch.
    pub fn look(&mut self, batch: Vec<Request>, now: Timestamp, grant: Option<SessionId>, epoch: Option<u64>) -> Trip {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let mut board = Board { standings: Default::default(), known: Vec::new() };
        let mut stamps = [None; KEYS.len()];
        for request in &batch {
            let now_there = self.store.see(KEYS[request.key]);
            let fresh_stamp = now_there.as_ref().map(|seen| seen.stamp);
            let is_of_now = |seen: &&Seen| {
                seen.epoch == epoch || (epoch.is_some() && seen.epoch.is_some() && self.variant == Variant::MemoryOfAnotherEpoch)
            };
            let seen = request.memory.as_ref().filter(is_of_now).cloned().or(now_there);
            stamps[request.key] = seen.as_ref().map(|seen| seen.stamp);
            if self.variant == Variant::MemoryKept {
                stamps[request.key] = fresh_stamp;
            }
            board.standings[request.key] = Some(self.snapshot(request.key, seen, now));
        }
        let way = epoch.map_or(Way::AtOnce(stamps), Way::Ahead);
        Trip { now, grant, batch, decided: Vec::new(), board, touches, locks: 0, way }
    }

    /// Reads the rest of the snapshots, each part in a statement of its own, and decides the batch. Returns `false` if that needs locks,
    /// for example for a refusal, which no row version would guard.
    pub fn decide_at_once(&mut self, trip: &mut Trip) -> Result<bool, Broken> {
        for request in &trip.batch {
            if let Some(snapshot) = trip.board.standings[request.key].as_mut().filter(|snapshot| !snapshot.is_new) {
                self.read_rest(snapshot, Some(request));
            }
        }
        let Ok(decided) = trip.batch.iter().map(|request| self.decide(trip, request)).collect::<Result<Vec<_>, NeedsMoreRows>>() else {
            return Ok(false);
        };
        if let (Variant::StampReadLater, Way::AtOnce(stamps)) = (self.variant, &mut trip.way) {
            *stamps = KEYS.map(|key| self.store.see(key).map(|seen| seen.stamp));
        }
        trip.decided = decided;
        let is_accepted = |decided: &Decided| decided.reply != Reply::Refused && decided.changes.as_ref().is_none_or(fits);
        Ok(matches!(trip.way, Way::Ahead(_)) || trip.decided.iter().all(is_accepted))
    }

    /// `write_single_statement`: a request whose guard fails is not written, and is decided again. Other processes have locked the
    /// instances `locked`.
    pub fn commit_at_once(&mut self, trip: &mut Trip, locked: u8) -> Result<Option<Vec<Verdict>>, Broken> {
        let Way::AtOnce(stamps) = trip.way else { return Ok(None) };
        let decided = std::mem::take(&mut trip.decided);
        let holds: Vec<bool> = (trip.batch.iter().zip(&decided))
            .map(|(request, decided)| {
                let is_locked = locked & (1 << request.key) != 0;
                decided.changes.as_ref().is_none_or(|changes| self.is_as_seen(trip, request.key, changes, stamps[request.key], is_locked))
            })
            .collect();
        self.store.commits += 1;
        let mut verdicts = Vec::new();
        for (n, (decided, holds)) in decided.into_iter().zip(holds).enumerate() {
            let request = trip.batch[n].clone();
            let mut verdict = match holds {
                true => self.write_one(trip, request.key, Some(&request), decided)?,
                false if self.variant == Variant::StaleAnswered => Verdict::of(decided.reply),
                false => Verdict { reply: None, ..Verdict::of(decided.reply) },
            };
            self.remember(trip, &request, &mut verdict);
            if self.variant == Variant::StaleUsedAgain && verdict.reply.is_none() && !trip.snapshot(request.key).is_new {
                let InstanceSnapshot { instance, has_timer, .. } = trip.snapshot(request.key).clone();
                let stamp = self.store.instances.get(&instance.id).map_or(0, |there| there.row_version);
                verdict.left = Some(Seen { instance, has_timer, stamp, epoch: None });
            }
            verdicts.push(verdict);
        }
        self.is_dirty = true;
        Ok(Some(verdicts))
    }

    /// Stores the snapshot that this commit leaves, with the row version or the file version that guards it.
    fn remember(&self, trip: &Trip, request: &Request, verdict: &mut Verdict) {
        let epoch = if let Way::Ahead(epoch) = trip.way { Some(epoch) } else { None };
        let snapshot = trip.snapshot(request.key);
        let (instance, has_timer) = (snapshot.instance.clone(), snapshot.has_timer);
        let stamp = instance.row_version;
        verdict.left = Some(Seen { instance, has_timer, stamp, epoch }).filter(|_| verdict.has_written);
    }

    /// `BatchCommit::commit_speculation`, under the write lock. Returns `None` and writes nothing if the file version is not `now`.
    pub fn commit_ahead(&mut self, trip: &mut Trip, now: u64) -> Result<Option<Vec<Verdict>>, Broken> {
        if trip.way != Way::Ahead(now) && self.variant != Variant::EpochNotCompared {
            return Ok(None);
        }
        // Only the file version guards a refusal.
        for n in 0..trip.batch.len() {
            let anew = |model: &mut Model| model.set_out(vec![trip.batch[n].clone()], trip.now, None).decided[0].reply;
            if trip.decided[n].reply == Reply::Refused && anew(self) != Reply::Refused {
                return Promise::RefusedForAReason
                    .broken(format!("a sender to `{}` is refused, and nothing is why", KEYS[trip.batch[n].key]));
            }
        }
        let mut verdicts = self.commit(trip)?;
        for (verdict, request) in verdicts.iter_mut().flatten().zip(&trip.batch) {
            self.remember(trip, request, verdict);
        }
        Ok(verdicts)
    }

    /// Checks the guards of one request of the batch.
    fn is_as_seen(&self, trip: &Trip, key: usize, changes: &Changes, stamp: Option<i64>, is_locked: bool) -> bool {
        let id = changes.instance.id;
        let is_same = match self.variant {
            Variant::StampNotCompared => self.store.instances.contains_key(&id),
            Variant::VersionForAStamp => {
                self.store.instances.get(&id).is_some_and(|instance| instance.version == trip.snapshot(key).instance.version)
            }
            _ => self.store.instances.get(&id).map(|instance| instance.row_version) == stamp,
        };
        let is_free = !is_locked || self.variant == Variant::StampWithoutLock;
        (changes.is_new || (is_same && is_free)) && self.store.guards_hold(changes, trip.variant(self.variant))
    }
}

impl Trip {
    /// True if the batch has been read and not decided.
    pub fn is_undecided(&self) -> bool {
        self.way != Way::Locked && self.decided.is_empty()
    }

    /// Returns the variant, or `True` if this kind of commit cannot make its mistake.
    pub fn variant(&self, variant: Variant) -> Variant {
        match (&self.way, variant) {
            (Way::Locked | Way::Ahead(_), Variant::KeyWithoutGuard) => Variant::True,
            (_, variant) => variant,
        }
    }
}

/// `fits` of `store/write/single_statement.rs`.
fn fits(changes: &Changes) -> bool {
    let payload = changes.open.as_ref().and_then(|open| open.payload.as_ref());
    payload.is_none_or(|payload| matches!(payload, Payload::Bytes(_)))
        && changes.timers.iter().all(|change| matches!(change, TimerChange::Set(_) | TimerChange::Clear))
        && changes.hold.is_none()
        && changes.retry_state.is_none()
        && changes.inbox_taken.is_none()
        && !changes.is_forecast_stale
}

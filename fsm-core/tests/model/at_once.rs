//! The optimistic commit of a small batch, mirroring `BatchSnapshot::see`, `BatchCommit::{single_statement,speculation}`,
//! `store/write/single_statement.rs` and `store/file_version.rs`: a read, a decision and a guarded write. Other processes commit between
//! any two of them.

use fsm_core::changes::{Changes, Payload, TimerChange};
use fsm_core::decide::InstanceSnapshot;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;

use super::Model;
use super::batch_commit::CommitOutcome;
use super::promise::{Broken, Promise};
use super::queue::{BatchCommit, BatchSnapshot, Decided, KEYS, Reply, Request, Seen, Way};
use super::variant::Variant;

impl Model {
    /// Reads the rows of the instances, or takes them from the snapshot cache. The attempts and the inboxes are not read yet. With an
    /// `file_version`, the file version guards the batch.
    pub fn look(&mut self, batch: Vec<Request>, now: Timestamp, grant: Option<SessionId>, file_version: Option<u64>) -> BatchCommit {
        let touches = batch.iter().fold(0, |touches, request| touches | request.touches());
        let mut batch_snapshot = BatchSnapshot { snapshots: Default::default(), known: Vec::new() };
        let mut row_versions = [None; KEYS.len()];
        for request in &batch {
            let now_there = self.store.see(KEYS[request.key]);
            let fresh_row_version = now_there.as_ref().map(|seen| seen.row_version);
            let is_of_now = |seen: &&Seen| {
                seen.file_version == file_version
                    || (file_version.is_some() && seen.file_version.is_some() && self.variant == Variant::SnapshotOfAnotherFileVersion)
            };
            let seen = request.cached.as_ref().filter(is_of_now).cloned().or(now_there);
            row_versions[request.key] = seen.as_ref().map(|seen| seen.row_version);
            if self.variant == Variant::SnapshotKept {
                row_versions[request.key] = fresh_row_version;
            }
            batch_snapshot.snapshots[request.key] = Some(self.snapshot(request.key, seen, now));
        }
        let way = file_version.map_or(Way::AtOnce(row_versions), Way::Ahead);
        BatchCommit { now, grant, batch, decided: Vec::new(), batch_snapshot, touches, locks: 0, way }
    }

    /// Reads the rest of the snapshots, each part in a statement of its own, and decides the batch. Returns `false` if that needs locks,
    /// for example for a refusal, which no row version would guard.
    pub fn decide_at_once(&mut self, batch_commit: &mut BatchCommit) -> Result<bool, Broken> {
        for request in &batch_commit.batch {
            if let Some(snapshot) = batch_commit.batch_snapshot.snapshots[request.key].as_mut().filter(|snapshot| !snapshot.is_new) {
                self.read_rest(snapshot, Some(request));
            }
        }
        let Ok(decided) =
            batch_commit.batch.iter().map(|request| self.decide(batch_commit, request)).collect::<Result<Vec<_>, NeedsMoreRows>>()
        else {
            return Ok(false);
        };
        if let (Variant::RowVersionReadLater, Way::AtOnce(row_versions)) = (self.variant, &mut batch_commit.way) {
            *row_versions = KEYS.map(|key| self.store.see(key).map(|seen| seen.row_version));
        }
        batch_commit.decided = decided;
        let is_accepted = |decided: &Decided| decided.reply != Reply::Refused && decided.changes.as_ref().is_none_or(fits);
        Ok(matches!(batch_commit.way, Way::Ahead(_)) || batch_commit.decided.iter().all(is_accepted))
    }

    /// `write_single_statement`: a request whose guard fails is not written, and is decided again. Other processes have locked the
    /// instances `locked`.
    pub fn commit_at_once(&mut self, batch_commit: &mut BatchCommit, locked: u8) -> Result<Option<Vec<CommitOutcome>>, Broken> {
        let Way::AtOnce(row_versions) = batch_commit.way else { return Ok(None) };
        let decided = std::mem::take(&mut batch_commit.decided);
        let holds: Vec<bool> = (batch_commit.batch.iter().zip(&decided))
            .map(|(request, decided)| {
                let is_locked = locked & (1 << request.key) != 0;
                decided
                    .changes
                    .as_ref()
                    .is_none_or(|changes| self.is_as_seen(batch_commit, request.key, changes, row_versions[request.key], is_locked))
            })
            .collect();
        self.store.commits += 1;
        let mut commit_outcomes = Vec::new();
        for (n, (decided, holds)) in decided.into_iter().zip(holds).enumerate() {
            let request = batch_commit.batch[n].clone();
            let mut commit_outcome = match holds {
                true => self.write_one(batch_commit, request.key, Some(&request), decided)?,
                false if self.variant == Variant::StaleAnswered => CommitOutcome::of(decided.reply),
                false => CommitOutcome { reply: None, ..CommitOutcome::of(decided.reply) },
            };
            self.remember(batch_commit, &request, &mut commit_outcome);
            if self.variant == Variant::StaleUsedAgain && commit_outcome.reply.is_none() && !batch_commit.snapshot(request.key).is_new {
                let InstanceSnapshot { instance, has_timer, .. } = batch_commit.snapshot(request.key).clone();
                let row_version = self.store.instances.get(&instance.id).map_or(0, |there| there.row_version);
                commit_outcome.left = Some(Seen { instance, has_timer, row_version, file_version: None });
            }
            commit_outcomes.push(commit_outcome);
        }
        self.is_dirty = true;
        Ok(Some(commit_outcomes))
    }

    /// Stores the snapshot that this commit leaves, with the row version or the file version that guards it.
    fn remember(&self, batch_commit: &BatchCommit, request: &Request, commit_outcome: &mut CommitOutcome) {
        let file_version = if let Way::Ahead(file_version) = batch_commit.way { Some(file_version) } else { None };
        let snapshot = batch_commit.snapshot(request.key);
        let (instance, has_timer) = (snapshot.instance.clone(), snapshot.has_timer);
        let row_version = instance.row_version;
        commit_outcome.left = Some(Seen { instance, has_timer, row_version, file_version }).filter(|_| commit_outcome.has_written);
    }

    /// `BatchCommit::commit_speculation`, under the write lock. Returns `None` and writes nothing if the file version is not `now`.
    pub fn commit_ahead(&mut self, batch_commit: &mut BatchCommit, now: u64) -> Result<Option<Vec<CommitOutcome>>, Broken> {
        if batch_commit.way != Way::Ahead(now) && self.variant != Variant::FileVersionNotCompared {
            return Ok(None);
        }
        // Only the file version guards a refusal.
        for n in 0..batch_commit.batch.len() {
            let anew = |model: &mut Model| model.set_out(vec![batch_commit.batch[n].clone()], batch_commit.now, None).decided[0].reply;
            if batch_commit.decided[n].reply == Reply::Refused && anew(self) != Reply::Refused {
                return Promise::RefusedForAReason
                    .broken(format!("a sender to `{}` is refused, and nothing is why", KEYS[batch_commit.batch[n].key]));
            }
        }
        let mut commit_outcomes = self.commit(batch_commit)?;
        for (commit_outcome, request) in commit_outcomes.iter_mut().flatten().zip(&batch_commit.batch) {
            self.remember(batch_commit, request, commit_outcome);
        }
        Ok(commit_outcomes)
    }

    /// Checks the guards of one request of the batch.
    fn is_as_seen(&self, batch_commit: &BatchCommit, key: usize, changes: &Changes, row_version: Option<i64>, is_locked: bool) -> bool {
        let id = changes.instance.id;
        let is_same = match self.variant {
            Variant::RowVersionNotCompared => self.store.instances.contains_key(&id),
            Variant::VersionForARowVersion => {
                self.store.instances.get(&id).is_some_and(|instance| instance.version == batch_commit.snapshot(key).instance.version)
            }
            _ => self.store.instances.get(&id).map(|instance| instance.row_version) == row_version,
        };
        let is_free = !is_locked || self.variant == Variant::RowVersionWithoutLock;
        (changes.is_new || (is_same && is_free)) && self.store.guards_hold(changes, batch_commit.variant(self.variant))
    }
}

impl BatchCommit {
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

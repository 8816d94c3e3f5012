//! The batch snapshot: the snapshots of all instances of a batch, updated while the batch is decided.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use super::database::{Database, Fault};
use super::environment::Environment;
use super::instance_key::{InstanceKey, InstanceMap, InstanceSet};
use super::request::{Request, RequestKind};
use super::rows::{FileVersion, KnownCall, Locked, Locks, Place, RowSnapshot, Target};
use crate::changes::Changes;
use crate::decide::InstanceSnapshot;
use crate::decide::inbox::NeedsMoreRows;
use crate::ids::{CallId, InstanceId};
use crate::instance::Instance;
use crate::time::Timestamp;

/// The number of waiting events of an instance that are read at first. The first event nearly always fits.
const FIRST: i64 = 8;
/// The factor by which more events are read if those do not suffice.
const FURTHER: i64 = 8;

/// The snapshots of all instances of a batch.
pub struct BatchSnapshot {
    snapshots: InstanceMap<InstanceSnapshot>,
    /// The key of each instance, by its id.
    names: HashMap<InstanceId, InstanceKey>,
    known: HashMap<CallId, KnownCall>,
    /// The instances that another transaction has locked. They were not read.
    locked: InstanceSet,
}

impl BatchSnapshot {
    /// Locks and reads all instances that the batch may write, and the other rows that its requests need.
    pub(super) async fn read<D: Database>(
        db: &mut D,
        batch: &[&Request],
        new: &impl Fn(&InstanceKey) -> InstanceSnapshot,
        locks: Locks,
    ) -> Result<BatchSnapshot, D::Error> {
        let mut all: Vec<_> = batch.iter().flat_map(|request| request.touches()).collect();
        all.sort();
        all.dedup();
        let (found, locked) = db.lock(&targets(&all), locks).await?;
        let locked = locked.into_iter().map(|place| all[place].clone()).collect();
        let snapshots = all.into_iter().zip(found).map(|(target, locked)| {
            let snapshot = locked.map(|Locked { instance, newest, has_timer }| InstanceSnapshot {
                newest,
                has_timer,
                ..InstanceSnapshot::of(instance)
            });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target)))
        });
        let mut batch_snapshot = BatchSnapshot { locked, ..BatchSnapshot::of(snapshots.collect()) };
        batch_snapshot.read_rest(db, batch).await?;
        Ok(batch_snapshot)
    }

    /// Reads the instances without a lock. With `uses_cache`, cached snapshots are used instead of a read. The write succeeds only if the
    /// row versions are unchanged then; on SQLite, if the file version is.
    pub(super) async fn see<D: Database>(
        db: &mut D,
        batch: &[&Request],
        new: &impl Fn(&InstanceKey) -> InstanceSnapshot,
        file_version: Option<FileVersion>,
        uses_cache: bool,
    ) -> Result<BatchSnapshot, D::Error> {
        let (mut all, mut unseen) = (Vec::with_capacity(batch.len()), Vec::new());
        for request in batch {
            match request.cached_snapshot(file_version).filter(|_| uses_cache) {
                Some(seen) => all.push((request.target.clone(), Some(seen.clone()))),
                None => unseen.push(request.target.clone()),
            }
        }
        let found = if unseen.is_empty() { Vec::new() } else { db.see(&targets(&unseen), file_version).await? };
        all.extend(unseen.into_iter().zip(found));
        let snapshots = all.into_iter().map(|(target, seen)| {
            let snapshot = seen.map(|RowSnapshot { instance, newest, has_timer, .. }| InstanceSnapshot {
                newest,
                has_timer,
                ..InstanceSnapshot::of(instance)
            });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target)))
        });
        let mut batch_snapshot = BatchSnapshot::of(snapshots.collect());
        batch_snapshot.read_rest(db, batch).await?;
        Ok(batch_snapshot)
    }

    fn of(snapshots: InstanceMap<InstanceSnapshot>) -> BatchSnapshot {
        let names = snapshots.iter().map(|(target, snapshot)| (snapshot.instance.id, target.clone())).collect();
        BatchSnapshot { snapshots, names, known: HashMap::new(), locked: InstanceSet::default() }
    }

    async fn read_rest<D: Database>(&mut self, db: &mut D, batch: &[&Request]) -> Result<(), D::Error> {
        self.read_caught(db, batch).await?;
        self.read_inboxes(db).await?;
        self.read_requests(db, batch).await?;
        self.read_awaited(db, batch).await?;
        self.read_known(db, batch).await
    }

    /// Returns the instances of the request that another transaction has locked. If there are any, the request is left out.
    pub(super) fn locked(&self, request: &Request) -> Vec<InstanceKey> {
        if self.locked.is_empty() {
            Vec::new()
        } else {
            request.touches().into_iter().filter(|target| self.locked.contains(target)).collect()
        }
    }

    /// Pairs the changes with the `updated_at` that their instances had when they were read.
    pub(super) fn guarded<'c>(&self, changes: &[&'c Changes]) -> Vec<(&'c Changes, Timestamp)> {
        changes.iter().map(|changes| (*changes, self.snapshot(self.name(changes.instance.id)).instance.updated_at)).collect()
    }

    pub(super) fn snapshot(&self, target: &InstanceKey) -> &InstanceSnapshot {
        self.snapshots.get(target).expect("the snapshot was read for every instance of the batch")
    }

    /// The place where the call of a repeated send was found, if it was.
    pub(super) fn known(&self, call: CallId) -> Option<&KnownCall> {
        self.known.get(&call)
    }

    /// Applies changes that were decided and written to the snapshot.
    pub(super) fn apply(&mut self, target: &InstanceKey, changes: Changes) {
        self.snapshots.get_mut(target).expect("the snapshot was read for every instance of the batch").apply(changes);
    }

    /// Returns the key of the instance.
    pub(super) fn name(&self, instance: InstanceId) -> &InstanceKey {
        self.names.get(&instance).expect("the snapshot was read for every instance of the batch")
    }

    /// Decides about an instance. Reads more of its inbox until the decision has the events that it needs.
    pub(super) async fn decide<D: Database, T>(
        &mut self,
        db: &mut D,
        target: &InstanceKey,
        decide: impl Fn(&BatchSnapshot) -> Result<T, NeedsMoreRows>,
    ) -> Result<T, D::Error> {
        loop {
            match decide(self) {
                Ok(decided) => return Ok(decided),
                Err(NeedsMoreRows) => self.read_on(db, target).await?,
            }
        }
    }

    /// Reads more of an inbox if its first events did not suffice.
    pub(super) async fn read_on<D: Database>(&mut self, db: &mut D, target: &InstanceKey) -> Result<(), D::Error> {
        let snapshot = self.snapshots.get_mut(target).expect("the snapshot was read for every instance of the batch");
        let most = (snapshot.inbox.first.len() as i64).max(FIRST) * FURTHER;
        let more = db.inbox(&snapshot.instance, most).await?;
        if more.len() <= snapshot.inbox.first.len() {
            let what = format!("instance {} has fewer events waiting than it counts", snapshot.instance.id);
            return Err(Fault::Corrupt { what }.into());
        }
        snapshot.inbox.first = more;
        Ok(())
    }

    /// Reads the calls whose catch verb ran, because an operator may run them again.
    async fn read_caught<D: Database>(&mut self, db: &mut D, batch: &[&Request]) -> Result<(), D::Error> {
        let operated: Vec<_> = batch.iter().filter(|request| matches!(request.kind, RequestKind::Operate(_))).map(|r| &r.target).collect();
        let caught =
            |snapshot: &InstanceSnapshot| snapshot.newest.as_ref().filter(|newest| newest.is_catch()).and_then(|newest| newest.previous);
        let wanted: Vec<_> = operated.iter().filter_map(|target| caught(self.snapshot(target))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for attempt in db.last_attempts(&wanted).await? {
            if let Some(snapshot) = self.by_id(attempt.instance) {
                snapshot.caught = Some(Arc::new(attempt));
            }
        }
        Ok(())
    }

    async fn read_inboxes<D: Database>(&mut self, db: &mut D) -> Result<(), D::Error> {
        let with_waiting_events: Vec<_> =
            self.snapshots.values().map(|snapshot| &*snapshot.instance).filter(|instance| instance.inbox_len() > 0).collect();
        if with_waiting_events.is_empty() {
            return Ok(());
        }
        for (instance, inbox) in db.inbox_ends(&with_waiting_events, FIRST).await? {
            if let Some(snapshot) = self.by_id(instance) {
                snapshot.inbox = inbox;
            }
        }
        Ok(())
    }

    async fn read_requests<D: Database>(&mut self, db: &mut D, batch: &[&Request]) -> Result<(), D::Error> {
        let asked: Vec<(InstanceId, &str)> = batch
            .iter()
            .filter_map(|request| match &request.kind {
                RequestKind::Send(send) => Some((self.snapshot(&request.target).instance.id, send.dedup.as_ref()?.id.as_str())),
                RequestKind::Operate(operation) => {
                    Some((self.snapshot(&request.target).instance.id, operation.request.as_ref()?.0.as_str()))
                }
                _ => None,
            })
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        for (instance, request) in db.requests(&asked).await? {
            if let Some(snapshot) = self.by_id(instance) {
                snapshot.request = Some(request);
            }
        }
        Ok(())
    }

    /// Reads whether the instance has another delayed event. An instance that has not begun ends when its last delayed event does not fit.
    async fn read_awaited<D: Database>(&mut self, db: &mut D, batch: &[&Request]) -> Result<(), D::Error> {
        for request in batch {
            let RequestKind::Fire(fired) = &request.kind else { continue };
            let snapshot = self.snapshots.get_mut(&request.target).expect("the snapshot was read for every instance of the batch");
            if snapshot.instance.has_not_begun() {
                snapshot.awaits_others = db.has_another_timer(snapshot.instance.id, fired.id).await?;
            }
        }
        Ok(())
    }

    /// Reads the calls of repeated sends. After a commit whose answer was lost, the send may have been written already.
    async fn read_known<D: Database>(&mut self, db: &mut D, batch: &[&Request]) -> Result<(), D::Error> {
        let repeated: Vec<_> = batch
            .iter()
            .filter(|request| request.tries > 0)
            .filter_map(|request| match &request.kind {
                RequestKind::Send(send) => Some(send.id),
                _ => None,
            })
            .collect();
        if !repeated.is_empty() {
            self.known = db.known(&repeated).await?.into_iter().map(|known| (known.call, known)).collect();
            // If the first attempt of a call has not ended, the call is the newest of its instance.
            let newest = batch.iter().filter_map(|request| {
                let snapshot = self.snapshots.get(&request.target)?;
                let (call, _) = snapshot.instance.newest?;
                Some((call, KnownCall { call, instance: snapshot.instance.id, place: Place::Call }))
            });
            self.known.extend(newest.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn by_id(&mut self, id: InstanceId) -> Option<&mut InstanceSnapshot> {
        self.snapshots.get_mut(self.names.get(&id)?)
    }
}

fn targets(all: &[InstanceKey]) -> Vec<Target<'_>> {
    all.iter().map(|target| Target { machine: &target.machine, key: &target.key }).collect()
}

/// The snapshot of an instance that does not exist yet.
pub(super) fn new(environment: &impl Environment, target: &InstanceKey, now: Timestamp) -> InstanceSnapshot {
    let instance = Instance::new(InstanceId(environment.fresh()), &target.machine, &target.key, now);
    InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(instance) }
}

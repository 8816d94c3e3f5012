//! The batch snapshot: the snapshots of all instances of a batch, updated while the batch is decided.

use foldhash::{HashMap, HashMapExt};
use fsm_core::changes::Changes;
use fsm_core::decide::InstanceSnapshot;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Instance;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::instance_key::{InstanceKey, InstanceMap, InstanceSet};
use super::request::{Request, RequestKind, touched};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::lock::{self, KnownCall, Locked, Place, RowSnapshot, Target};
use crate::store::timers;

/// The number of waiting events of an instance that are read at first. The first event nearly always fits.
const FIRST: i64 = 8;
/// The factor by which more events are read if those do not suffice.
const FURTHER: i64 = 8;

/// The snapshots of all instances of a batch.
pub(crate) struct BatchSnapshot {
    snapshots: InstanceMap<InstanceSnapshot>,
    /// The key of each instance, by its id.
    names: HashMap<InstanceId, InstanceKey>,
    known: HashMap<CallId, KnownCall>,
    /// The instances that another transaction has locked. They were not read.
    locked: InstanceSet,
}

/// The handling of instances that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locks {
    /// Wait for the lock.
    AreWaitedFor,
    /// Leave out the requests for the instance.
    AreSkipped,
}

impl BatchSnapshot {
    /// Locks and reads all instances that the batch may write, and the other rows that its requests need.
    pub(crate) async fn read(conn: &mut Conn<'_>, batch: &[Request], now: Timestamp, locks: Locks) -> Result<BatchSnapshot, StoreError> {
        let mut all = touched(batch);
        all.sort();
        all.dedup();
        let (found, locked) = match locks {
            Locks::AreWaitedFor => (lock::instances(conn, &targets(&all)).await?, Vec::new()),
            Locks::AreSkipped => lock::free_instances(conn, &targets(&all)).await?,
        };
        let locked = locked.into_iter().map(|place| all[place].clone()).collect();
        let snapshots = all.into_iter().zip(found).map(|(target, locked)| {
            let snapshot = locked.map(|Locked { instance, newest, has_timer }| InstanceSnapshot {
                newest,
                has_timer,
                ..InstanceSnapshot::of(instance)
            });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target, now)))
        });
        let mut batch_snapshot = BatchSnapshot { locked, ..BatchSnapshot::of(snapshots.collect()) };
        batch_snapshot.read_rest(conn, batch).await?;
        Ok(batch_snapshot)
    }

    /// Reads the instances without a lock. With `uses_cache`, cached snapshots are used instead of a read. The write succeeds only if the
    /// row versions are unchanged then; on SQLite, if the file version is.
    pub(crate) async fn see(
        conn: &mut Conn<'_>,
        batch: &[Request],
        now: Timestamp,
        file_version: Option<FileVersion>,
        uses_cache: bool,
    ) -> Result<BatchSnapshot, StoreError> {
        let (mut all, mut unseen) = (Vec::with_capacity(batch.len()), Vec::new());
        for request in batch {
            match request.cached_snapshot(file_version).filter(|_| uses_cache) {
                Some(seen) => all.push((request.target.clone(), Some(seen.clone()))),
                None => unseen.push(request.target.clone()),
            }
        }
        let found = if unseen.is_empty() { Vec::new() } else { lock::see(conn, &targets(&unseen), file_version).await? };
        all.extend(unseen.into_iter().zip(found));
        let snapshots = all.into_iter().map(|(target, seen)| {
            let snapshot = seen.map(|RowSnapshot { instance, newest, has_timer, .. }| InstanceSnapshot {
                newest,
                has_timer,
                ..InstanceSnapshot::of(instance)
            });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target, now)))
        });
        let mut batch_snapshot = BatchSnapshot::of(snapshots.collect());
        batch_snapshot.read_rest(conn, batch).await?;
        Ok(batch_snapshot)
    }

    fn of(snapshots: InstanceMap<InstanceSnapshot>) -> BatchSnapshot {
        let names = snapshots.iter().map(|(target, snapshot)| (snapshot.instance.id, target.clone())).collect();
        BatchSnapshot { snapshots, names, known: HashMap::new(), locked: InstanceSet::default() }
    }

    async fn read_rest(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        self.read_caught(conn, batch).await?;
        self.read_inboxes(conn).await?;
        self.read_requests(conn, batch).await?;
        self.read_awaited(conn, batch).await?;
        self.read_known(conn, batch).await
    }

    /// Returns the instances of the request that another transaction has locked. If there are any, the request is left out.
    pub(crate) fn locked(&self, request: &Request) -> Vec<InstanceKey> {
        if self.locked.is_empty() {
            Vec::new()
        } else {
            request.touches().into_iter().filter(|target| self.locked.contains(target)).collect()
        }
    }

    /// Pairs the changes with the `updated_at` that their instances had when they were read.
    #[cfg(feature = "postgres")]
    pub(crate) fn guarded<'c>(&self, changes: &[&'c Changes]) -> Vec<(&'c Changes, Timestamp)> {
        changes.iter().map(|changes| (*changes, self.snapshot(self.name(changes.instance.id)).instance.updated_at)).collect()
    }

    pub(crate) fn snapshot(&self, target: &InstanceKey) -> &InstanceSnapshot {
        self.snapshots.get(target).expect("the snapshot was read for every instance of the batch")
    }

    /// The place where the call of a repeated send was found, if it was.
    pub(crate) fn known(&self, call: CallId) -> Option<&KnownCall> {
        self.known.get(&call)
    }

    /// Applies changes that were decided and written to the snapshot.
    pub(crate) fn apply(&mut self, target: &InstanceKey, changes: Changes) {
        self.snapshots.get_mut(target).expect("the snapshot was read for every instance of the batch").apply(changes);
    }

    /// Returns the key of the instance.
    pub(crate) fn name(&self, instance: InstanceId) -> &InstanceKey {
        self.names.get(&instance).expect("the snapshot was read for every instance of the batch")
    }

    /// Reads more of an inbox if its first events did not suffice.
    pub(crate) async fn read_on(&mut self, conn: &mut Conn<'_>, target: &InstanceKey) -> Result<(), StoreError> {
        let snapshot = self.snapshots.get_mut(target).expect("the snapshot was read for every instance of the batch");
        let most = (snapshot.inbox.first.len() as i64).max(FIRST) * FURTHER;
        let more = lock::inbox(conn, &[&snapshot.instance], most).await?;
        if more.len() <= snapshot.inbox.first.len() {
            let what = format!("instance {} has fewer events waiting than it counts", snapshot.instance.id);
            return Err(StoreError::Corrupt { what });
        }
        snapshot.inbox.first = more.into_iter().map(|(_, waiting)| waiting).collect();
        Ok(())
    }

    /// Reads the calls whose catch verb ran, because an operator may run them again.
    async fn read_caught(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        let operated: Vec<_> = batch.iter().filter(|request| matches!(request.kind, RequestKind::Operate(_))).map(|r| &r.target).collect();
        let caught =
            |snapshot: &InstanceSnapshot| snapshot.newest.as_ref().filter(|newest| newest.is_catch()).and_then(|newest| newest.previous);
        let wanted: Vec<_> = operated.iter().filter_map(|target| caught(self.snapshot(target))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for attempt in lock::last_attempts(conn, &wanted).await? {
            if let Some(snapshot) = self.by_id(attempt.instance) {
                snapshot.caught = Some(attempt);
            }
        }
        Ok(())
    }

    async fn read_inboxes(&mut self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        let with_waiting_events: Vec<_> =
            self.snapshots.values().map(|snapshot| &*snapshot.instance).filter(|instance| instance.inbox_len() > 0).collect();
        if with_waiting_events.is_empty() {
            return Ok(());
        }
        for (instance, inbox) in lock::inbox_ends(conn, &with_waiting_events, FIRST).await? {
            if let Some(snapshot) = self.by_id(instance) {
                snapshot.inbox = inbox;
            }
        }
        Ok(())
    }

    async fn read_requests(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
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
        for (instance, request) in lock::requests(conn, &asked).await? {
            if let Some(snapshot) = self.by_id(instance) {
                snapshot.request = Some(request);
            }
        }
        Ok(())
    }

    /// Reads whether the instance has another delayed event. An instance that has not begun ends when its last delayed event does not fit.
    async fn read_awaited(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            let RequestKind::Fire(fired) = &request.kind else { continue };
            let snapshot = self.snapshots.get_mut(&request.target).expect("the snapshot was read for every instance of the batch");
            if snapshot.instance.has_not_begun() {
                snapshot.awaits_others = timers::has_another(conn, snapshot.instance.id, fired.timer.id).await?;
            }
        }
        Ok(())
    }

    /// Reads the calls of repeated sends. After a commit whose answer was lost, the send may have been written already.
    async fn read_known(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        let repeated: Vec<_> = batch
            .iter()
            .filter(|request| request.tries > 0)
            .filter_map(|request| match &request.kind {
                RequestKind::Send(send) => Some(send.id),
                _ => None,
            })
            .collect();
        if !repeated.is_empty() {
            self.known = lock::known(conn, &repeated).await?.into_iter().map(|known| (known.call, known)).collect();
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

fn new(target: &InstanceKey, now: Timestamp) -> InstanceSnapshot {
    let instance = Instance::new(InstanceId(Uuid::now_v7()), &target.machine, &target.key, now);
    InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(instance) }
}

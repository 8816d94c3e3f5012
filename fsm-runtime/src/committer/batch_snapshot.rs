//! What is known of the instances that a batch concerns, read under their locks and kept up to date while it is decided.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::InstanceSnapshot;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::request::{InstanceKey, Request, RequestKind, touched};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::lock::{self, KnownCall, Locked, RowSnapshot, Target};
use crate::store::timers;
use crate::store::write::RowVersion;

/// How many of an instance's waiting events are read at first: the first one fits nearly always.
const FIRST: i64 = 8;
/// How many times as many are read next if they do not suffice.
const FURTHER: i64 = 8;

/// The standings of a batch.
pub(crate) struct BatchSnapshot {
    standings: HashMap<InstanceKey, InstanceSnapshot>,
    /// The key of each instance, by its id.
    names: HashMap<InstanceId, InstanceKey>,
    known: HashMap<CallId, KnownCall>,
    /// Which commit left each of them as it is, where none is locked.
    stamps: HashMap<InstanceId, RowVersion>,
    /// Those that somebody else has locked: nothing is known of them.
    locked: HashSet<InstanceKey>,
}

/// How an instance is read that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locks {
    /// Once its lock is free.
    AreWaitedFor,
    /// Not at all: its requests are left out.
    ArePassedOver,
}

impl BatchSnapshot {
    /// Locks and reads every instance that the batch may write, and beside it only what its requests need.
    pub(crate) async fn read(conn: &mut Conn<'_>, batch: &[Request], now: Timestamp, locks: Locks) -> Result<BatchSnapshot, StoreError> {
        let mut all = touched(batch);
        all.sort();
        all.dedup();
        let (found, locked) = match locks {
            Locks::AreWaitedFor => (lock::instances(conn, &targets(&all)).await?, Vec::new()),
            Locks::ArePassedOver => lock::free_instances(conn, &targets(&all)).await?,
        };
        let locked = locked.into_iter().map(|place| all[place].clone()).collect();
        let standings = all.into_iter().zip(found).map(|(target, locked)| {
            let snapshot = locked.map(|Locked { instance, has_timer }| InstanceSnapshot { has_timer, ..InstanceSnapshot::of(instance) });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target, now)))
        });
        let mut batch_snapshot = BatchSnapshot { locked, ..BatchSnapshot::of(standings.collect(), HashMap::new()) };
        batch_snapshot.read_rest(conn, batch).await?;
        Ok(batch_snapshot)
    }

    /// The same without a lock, and if it `remembers`, without a look at those that were seen here last. Nobody has changed them meanwhile if
    /// their stamps are the same when it is written; with SQLite, if that epoch still lasts.
    pub(crate) async fn see(
        conn: &mut Conn<'_>,
        batch: &[Request],
        now: Timestamp,
        file_version: Option<FileVersion>,
        remembers: bool,
    ) -> Result<BatchSnapshot, StoreError> {
        let (mut all, mut unseen) = (Vec::with_capacity(batch.len()), Vec::new());
        for request in batch {
            match request.seen(file_version).filter(|_| remembers) {
                Some(seen) => all.push((request.target.clone(), Some(seen.clone()))),
                None => unseen.push(request.target.clone()),
            }
        }
        let found = if unseen.is_empty() { Vec::new() } else { lock::see(conn, &targets(&unseen), file_version).await? };
        all.extend(unseen.into_iter().zip(found));
        let stamps = all.iter().filter_map(|(_, seen)| seen.as_ref().map(|seen| (seen.instance.id, seen.row_version))).collect();
        let standings = all.into_iter().map(|(target, seen)| {
            let snapshot =
                seen.map(|RowSnapshot { instance, has_timer, .. }| InstanceSnapshot { has_timer, ..InstanceSnapshot::of(instance) });
            (target.clone(), snapshot.unwrap_or_else(|| new(&target, now)))
        });
        let mut batch_snapshot = BatchSnapshot::of(standings.collect(), stamps);
        batch_snapshot.read_rest(conn, batch).await?;
        Ok(batch_snapshot)
    }

    fn of(standings: HashMap<InstanceKey, InstanceSnapshot>, stamps: HashMap<InstanceId, RowVersion>) -> BatchSnapshot {
        let names = standings.iter().map(|(target, snapshot)| (snapshot.instance.id, target.clone())).collect();
        BatchSnapshot { standings, names, known: HashMap::new(), stamps, locked: HashSet::new() }
    }

    async fn read_rest(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        self.read_attempts(conn, batch).await?;
        self.read_inboxes(conn).await?;
        self.read_requests(conn, batch).await?;
        self.read_awaited(conn, batch).await?;
        self.read_known(conn, batch).await
    }

    /// Which commit left the instance as it was seen; `None` for one that is new.
    pub(crate) fn row_version(&self, instance: InstanceId) -> Option<RowVersion> {
        self.stamps.get(&instance).copied()
    }

    /// Those instances of the request that somebody else has locked: it is left out.
    pub(crate) fn locked(&self, request: &Request) -> Vec<InstanceKey> {
        // Most often there is none.
        if self.locked.is_empty() {
            Vec::new()
        } else {
            request.touches().into_iter().filter(|target| self.locked.contains(target)).collect()
        }
    }

    pub(crate) fn snapshot(&self, target: &InstanceKey) -> &InstanceSnapshot {
        self.standings.get(target).expect("the board was read for every instance of the batch")
    }

    /// Where a repeated send's call is already.
    pub(crate) fn known(&self, call: CallId) -> Option<&KnownCall> {
        self.known.get(&call)
    }

    /// What was decided and written becomes what is known.
    pub(crate) fn apply(&mut self, target: &InstanceKey, changes: Changes) {
        self.standings.get_mut(target).expect("the board was read for every instance of the batch").apply(changes);
    }

    /// The instance.
    pub(crate) fn name(&self, instance: InstanceId) -> &InstanceKey {
        self.names.get(&instance).expect("the board was read for every instance of the batch")
    }

    /// Reads more of an inbox whose first events did not suffice.
    pub(crate) async fn read_on(&mut self, conn: &mut Conn<'_>, target: &InstanceKey) -> Result<(), StoreError> {
        let snapshot = self.standings.get_mut(target).expect("the board was read for every instance of the batch");
        let most = (snapshot.inbox.first.len() as i64).max(FIRST) * FURTHER;
        let more = lock::inbox(conn, &[&snapshot.instance], most).await?;
        if more.len() <= snapshot.inbox.first.len() {
            let what = format!("instance {} has fewer events waiting than it counts", snapshot.instance.id);
            return Err(StoreError::Corrupt { what });
        }
        snapshot.inbox.first = more.into_iter().map(|(_, priority_queue)| priority_queue).collect();
        Ok(())
    }

    /// The newest attempt matters where it is live or exhausted. A report brings its own, and needs no other.
    async fn read_attempts(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            if let RequestKind::Complete(report) = &request.kind {
                let snapshot = self.standings.get_mut(&request.target).expect("the board was read for every instance of the batch");
                if snapshot.instance.newest == Some((report.attempt.call, report.attempt.number)) {
                    snapshot.newest = Some(Arc::clone(&report.attempt));
                }
            }
        }
        let matters = |snapshot: &&mut InstanceSnapshot| {
            snapshot.newest.is_none() && (snapshot.instance.is_open || snapshot.instance.status == Status::Error)
        };
        let operated: Vec<_> = batch.iter().filter(|request| matches!(request.kind, RequestKind::Operate(_))).map(|r| &r.target).collect();
        let wanted: Vec<_> = self
            .standings
            .iter_mut()
            .filter(|(target, snapshot)| matters(snapshot) || operated.contains(target))
            .filter_map(|(_, snapshot)| snapshot.instance.newest)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for attempt in lock::attempts(conn, &wanted).await? {
            if let Some(snapshot) = self.by_id(attempt.instance) {
                snapshot.newest = Some(Arc::new(attempt));
            }
        }
        self.read_caught(conn, &operated).await
    }

    /// An operator may run a caught call again.
    async fn read_caught(&mut self, conn: &mut Conn<'_>, operated: &[&InstanceKey]) -> Result<(), StoreError> {
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
        let priority_queue: Vec<_> =
            self.standings.values().map(|snapshot| &*snapshot.instance).filter(|instance| instance.inbox_len() > 0).collect();
        if priority_queue.is_empty() {
            return Ok(());
        }
        for (instance, inbox) in lock::inbox_ends(conn, &priority_queue, FIRST).await? {
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

    /// An instance that has not begun ends with the last delayed event if that does not fit.
    async fn read_awaited(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            let RequestKind::Fire(fired) = &request.kind else { continue };
            let snapshot = self.standings.get_mut(&request.target).expect("the board was read for every instance of the batch");
            if snapshot.instance.has_not_begun() {
                snapshot.awaits_others = timers::has_another(conn, snapshot.instance.id, fired.timer.id).await?;
            }
        }
        Ok(())
    }

    /// After a commit whose answer was lost, a send looks for itself before it is decided again.
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
        }
        Ok(())
    }

    fn by_id(&mut self, id: InstanceId) -> Option<&mut InstanceSnapshot> {
        self.standings.get_mut(self.names.get(&id)?)
    }
}

fn targets(all: &[InstanceKey]) -> Vec<Target<'_>> {
    all.iter().map(|target| Target { machine: &target.machine, key: &target.key }).collect()
}

fn new(target: &InstanceKey, now: Timestamp) -> InstanceSnapshot {
    let instance = Instance::new(InstanceId(Uuid::now_v7()), &target.machine, &target.key, now);
    InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(instance) }
}

//! The engine: the data that all tasks of a process share. In a worker it includes the slots and the session.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use foldhash::HashMap;
use fsm_core::ids::{CallId, InstanceId, SessionId};
use fsm_core::partition::{Partition, partition_of};
use fsm_store::claim::Served;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::open::Store;
#[cfg(feature = "sqlite")]
use fsm_store::sqlite::file_versions::FileVersions;
use fsm_store::tx::Reader;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::committer::lane_limit::{LaneLimit, LaneLimits};
use crate::committer::queue::Queue;
use crate::committer::snapshot_cache::SnapshotCache;
use crate::committer::ticket::LastCommit;
use crate::data::DataMap;
use crate::data_protection::DataProtection;
use crate::error::Error;
use crate::failing::Failures;
use crate::families::changed::ChangedFamilies;
use crate::guard;
use crate::health::Observations;
use crate::in_flight::InFlightCommits;
use crate::limits::Limits;
use crate::outage::Outage;
use crate::permit_state::PermitState;
use crate::preference::Preference;
use crate::priority_shares::PriorityShares;
use crate::reconciler_state::ReconcilerState;
use crate::running::{Phase, Running, UnreportedAttempt};
use crate::schedule::Planned;
use crate::session::{Session, measure_on};
use crate::traces;
use crate::wake_up::{PendingNotifications, WakeUp};
use crate::watchers::Watchers;

/// The data that only a worker has.
pub(crate) struct Work {
    pub(crate) session: Session,
    pub(crate) served: Vec<Served>,
    pub(crate) data: DataMap,
    /// The span of an attempt is a child of that of its sender, and not linked to it.
    pub(crate) has_parent_from_send: bool,
    /// The schedules that this program declares.
    pub(crate) schedules: Vec<Planned>,
    /// One permit for each attempt that may execute at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// The number of all permits, free or in use.
    pub(crate) slot_count: usize,
    pub(crate) poll: Duration,
    /// The preference of this process for the partition.
    pub(crate) preference: Preference,
    /// The database had limits at the start. Without any, no limit is read.
    pub(crate) has_limits: AtomicBool,
    /// The time, in microseconds, before which no claim under a limit is tried again, because another process claims.
    pub(crate) limits_taken_until: AtomicI64,
    /// The retention time of ended instances; `None` keeps them without limit.
    pub(crate) retention: Option<Duration>,
    /// The state of the reconciler, which corrects rows that other code wrote.
    pub(crate) reconciler_state: tokio::sync::Mutex<ReconcilerState>,
    /// The share of each priority in the slots.
    pub(crate) shares: PriorityShares,
    /// The due rows that failed, which are retried with backoff.
    pub(crate) failures: Failures,
    pub(crate) running: Mutex<HashMap<(CallId, u32), Running>>,
    pub(crate) is_shutting_down: AtomicBool,
    /// The shutdown begins.
    pub(crate) stop: Notify,
    /// Held while events are delivered to other partitions.
    pub(crate) delivers: tokio::sync::Mutex<()>,
    pub(crate) ended: Notify,
    /// A verb showed progress that is not written yet.
    pub(crate) progress: Arc<Notify>,
    /// One permit for each verb that may block a thread at the same time.
    pub(crate) blocking: Arc<Semaphore>,
    /// The last instance that the sweeper has read in its scan of all instances, for attempts that no log lists.
    pub(crate) scanned: Mutex<InstanceId>,
}

/// An open database, or one partition of it.
pub(crate) struct OpenDatabase {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// `None` for a database without partitions.
    pub(crate) partition: Option<Partition>,
    /// False for a partition that could not be reached. Its work starts later.
    pub(crate) is_prepared: bool,
}

/// The data that all tasks of a process share. On a database with partitions, a process has one engine for each.
pub(crate) struct Engine {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    /// The partition of this engine; `None` for a database without partitions.
    pub(crate) partition: Option<Partition>,
    /// The engines of the other partitions, set before work starts.
    peers: OnceLock<Weak<[Arc<Engine>]>>,
    /// The stores of all partitions, set before work starts; not set for a database without partitions.
    pub(crate) stores: OnceLock<Arc<[Store]>>,
    pub(crate) catalog: Catalog,
    pub(crate) limits: Limits,
    pub(crate) data_protection: DataProtection,
    pub(crate) queue: Arc<Queue>,
    pub(crate) snapshot_cache: SnapshotCache,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) wake_up: WakeUp,
    pub(crate) pending_notifications: PendingNotifications,
    /// Events of this process wait in the outbox.
    pub(crate) has_line: Notify,
    /// Events of this process wait in the outbox of the partition.
    pub(crate) has_event_elsewhere: Notify,
    /// The calls that wait for limits over partitions.
    pub(crate) permit_state: PermitState,
    /// The families that commits of this process may have changed.
    pub(crate) families: ChangedFamilies,
    /// Spans of this process have trace contexts, for a layer of OpenTelemetry sees them, or a caller has named one.
    pub(crate) is_traced: AtomicBool,
    /// `None` for a client.
    pub(crate) work: Option<Work>,
    pub(crate) tasks: Mutex<Vec<AbortHandle>>,
    /// The limits of commits in flight, which all partitions have together.
    lane_limits: OnceLock<Arc<LaneLimits>>,
    /// The time of the committer's last successful commit.
    pub(crate) last_commit: Arc<LastCommit>,
    /// The commits of this process in flight, until their consequences have been carried out.
    pub(crate) in_flight: InFlightCommits,
    /// The file versions, which show whether anybody else wrote to the SQLite file.
    #[cfg(feature = "sqlite")]
    pub(crate) file_versions: FileVersions,
    /// The result of the last look at the database's state.
    pub(crate) observations: Observations,
    /// The outage of the database, if there is one.
    pub(crate) outage: Outage,
}

impl Engine {
    pub(crate) fn new(
        OpenDatabase { store, clock, partition, .. }: OpenDatabase,
        catalog: Catalog,
        (limits, data_protection): (Limits, DataProtection),
        work: Option<Work>,
    ) -> Arc<Engine> {
        Arc::new(Engine {
            store,
            clock,
            partition,
            peers: OnceLock::new(),
            stores: OnceLock::new(),
            catalog,
            limits,
            data_protection,
            queue: Arc::default(),
            snapshot_cache: SnapshotCache::default(),
            watchers: Arc::default(),
            wake_up: WakeUp::default(),
            pending_notifications: PendingNotifications::default(),
            has_line: Notify::new(),
            has_event_elsewhere: Notify::new(),
            permit_state: PermitState::default(),
            families: ChangedFamilies::default(),
            is_traced: traces::are_seen().into(),
            work,
            tasks: Mutex::default(),
            lane_limits: OnceLock::new(),
            last_commit: Arc::default(),
            in_flight: InFlightCommits::default(),
            #[cfg(feature = "sqlite")]
            file_versions: FileVersions::default(),
            observations: Observations::default(),
            outage: Outage::default(),
        })
    }

    /// Lets this engine reach those of all partitions. Called once, at the start.
    pub(crate) fn meet(&self, peers: Weak<[Arc<Engine>]>, stores: &Arc<[Store]>, lane_limits: &Arc<LaneLimits>) {
        self.peers.set(peers).expect("an engine meets its peers once");
        if self.partition.is_some() {
            self.lane_limits.set(Arc::clone(lane_limits)).ok();
            self.stores.set(Arc::clone(stores)).ok();
        }
    }

    /// Returns an `is_input` error if the instance with this key belongs to another partition.
    pub(crate) fn check_here(&self, key: &str) -> Result<(), Error> {
        match self.partition.and_then(|here| Some((here, here.elsewhere(key)?))) {
            None => Ok(()),
            Some((here, there)) => {
                let key = key.escape_debug();
                Err(Error::input(format!("`{key}` belongs to partition {there}, and this is partition {}", here.number())))
            }
        }
    }

    /// The engines of all partitions, this one included. None if the process ends, or without partitions.
    pub(crate) fn peers(&self) -> Vec<Arc<Engine>> {
        let peers = self.peers.get().filter(|_| self.partition.is_some()).and_then(Weak::upgrade);
        peers.map(|engines| engines.to_vec()).unwrap_or_default()
    }

    /// The engine of the partition with this number; `None` if the process ends.
    pub(crate) fn peer(&self, number: u32) -> Option<Arc<Engine>> {
        self.peers.get()?.upgrade()?.get(number as usize).map(Arc::clone)
    }

    /// The engine of this process for the partition that has the instance with this key; `None` if the process ends.
    pub(crate) fn of_key(&self, key: &str) -> Option<Arc<Engine>> {
        self.peers.get()?.upgrade().map(|engines| Arc::clone(engine_of(&engines, key)))
    }

    /// Starts the commit lanes: three on PostgreSQL. SQLite has one writer and gets two lanes, one that writes while the other one decides.
    pub(crate) fn start_lanes(self: &Arc<Self>) {
        let lanes = if self.store.is_postgres() { 3 } else { 2 };
        for _ in 0..lanes {
            self.keep_running("committer", Engine::commit_loop);
        }
    }

    /// The limit of commits in flight, which the partitions in one database share.
    pub(crate) fn lane_limit(&self) -> Arc<LaneLimit> {
        self.lane_limits.get_or_init(Arc::default).of(&self.store)
    }

    /// Runs a task that ends with the engine. It is not restarted if it panics.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        let mut tasks = guard::lock(&self.tasks);
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    /// The session under which a call may execute here at once. `None` for a client, or if the session's lease is uncertain.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.work.as_ref()?.session.certain(self.clock.now())
    }

    /// Returns a connection for reads of rows by key. The clock is measured first if the connection is new, because it may lead to another
    /// server.
    pub(crate) async fn engine_reader(&self) -> Result<Reader, StoreError> {
        let mut reader = self.store.engine_reader().await?;
        let number = reader.number();
        self.measure(&mut reader.conn(), number).await?;
        Ok(reader)
    }

    /// Measures the database's clock on this connection if that is due.
    pub(crate) async fn measure(&self, conn: &mut Conn<'_>, number: u64) -> Result<(), StoreError> {
        if self.clock.is_due(number) { measure_on(&self.store, &self.clock, conn, number).await } else { Ok(()) }
    }

    /// Returns true if attempts may start in this process.
    pub(crate) fn may_start(&self) -> bool {
        self.work.as_ref().is_some_and(|work| !work.is_shutting_down.load(Ordering::Acquire))
    }

    /// Lets no more attempts start here. The process is not ready from now on.
    pub(crate) fn stop_starting(&self) {
        if let Some(work) = &self.work {
            work.is_shutting_down.store(true, Ordering::Release);
            work.stop.notify_waiters();
        }
    }

    /// Waits until no more attempts may start here. Never returns in a client.
    pub(crate) async fn stops(&self) {
        match &self.work {
            Some(work) => work.stops().await,
            None => std::future::pending().await,
        }
    }

    /// Takes a slot for one attempt if one is free.
    pub(crate) fn free_slot(&self) -> Option<OwnedSemaphorePermit> {
        let work = self.work.as_ref().filter(|_| self.may_start())?;
        Arc::clone(&work.slots).try_acquire_owned().ok()
    }

    /// Ends all tasks of this process at once, as a crash would.
    pub(crate) fn kill(&self) {
        self.queue.abandon();
        self.stop_starting();
        if let Some(work) = &self.work {
            work.session.stop();
        }
        self.abort_tasks();
    }

    fn abort_tasks(&self) -> Vec<AbortHandle> {
        let mut ended = std::mem::take(&mut *guard::lock(&self.tasks));
        if let Some(work) = &self.work {
            ended.extend(std::mem::take(&mut *work.running()).into_values().map(Running::into_task));
        }
        ended.iter().for_each(AbortHandle::abort);
        ended
    }

    /// Ends all tasks and waits until they have ended.
    #[cfg(feature = "testing")]
    pub(crate) async fn end_tasks(&self) {
        self.snapshot_cache.forget();
        let aborted = self.abort_tasks();
        self.queue.close();
        for task in aborted {
            while !task.is_finished() {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Work {
    /// Waits until the shutdown begins.
    pub(crate) async fn stops(&self) {
        let mut stop = pin!(self.stop.notified());
        stop.as_mut().enable();
        if !self.is_shutting_down.load(Ordering::Acquire) {
            stop.await;
        }
    }

    /// The number of attempts that ended and are not reported, and the number of those that are still running.
    pub(crate) fn left(&self) -> (usize, usize) {
        let running = self.running();
        let unreported = running.values().filter(|running| running.phase == Phase::Ended).count();
        (unreported, running.len() - unreported)
    }

    /// The attempts that ended and whose outcome is not stored yet.
    pub(crate) fn unreported(&self) -> Vec<UnreportedAttempt> {
        self.running().values().filter_map(Running::unreported).collect()
    }

    pub(crate) fn running(&self) -> MutexGuard<'_, HashMap<(CallId, u32), Running>> {
        guard::lock(&self.running)
    }
}

/// The engine of the partition that has the instance with this key.
pub(crate) fn engine_of<'e>(engines: &'e [Arc<Engine>], key: &str) -> &'e Arc<Engine> {
    match engines {
        [only] => only,
        // There are at most `MOST_PARTITIONS`.
        several => &several[partition_of(key, several.len() as u32) as usize],
    }
}

#[cfg(all(test, unix, feature = "postgres", feature = "testing"))]
mod tests;

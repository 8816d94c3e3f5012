//! `TestBed`: the engine of a runtime under a test's clock, on SQLite in memory or on a fresh PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;
use fsm_store::invariants::Invariant;
use fsm_store::sessions;
#[cfg(feature = "postgres")]
use fsm_store::testing::Fresh;
use fsm_store::tx::DedicatedConnection;
use tokio::sync::Mutex;

use super::database::{Origin, TestDatabase};
use crate::catalog::Catalog;
use crate::drift::Migrate;
use crate::engine::{Engine, Work};
use crate::engine_access::EngineAccess;
use crate::engines::Engines;
use crate::error::Error;
use crate::handle::Handle;
use crate::limit::LimitSetting;
use crate::pruner::PrunerPosition;
use crate::registry::Machine;
use crate::runtime::Builder;
use crate::schedule::DeclaredSchedule;

/// The interval at which a waiting test bed checks whether all is idle, in case it missed a notification.
const LOOK: Duration = Duration::from_millis(5);

/// A builder of test beds. It has the most used methods of [`Builder`]; [`with`](TestBedBuilder::with) gives access to all others.
#[derive(Clone, Default)]
pub struct TestBedBuilder {
    builder: Builder,
}

impl TestBedBuilder {
    /// Adds a value for the verbs that take `Data<T>`. There is one value for each type; the last one counts.
    pub fn data<T: Send + Sync + 'static>(self, value: T) -> Self {
        TestBedBuilder { builder: self.builder.data(value) }
    }

    /// Adds a value that the test has as an `Arc` already. `T` may be a trait, for verbs that take `Data<dyn Trait>`.
    pub fn data_arc<T: ?Sized + Send + Sync + 'static>(self, value: Arc<T>) -> Self {
        TestBedBuilder { builder: self.builder.data_arc(value) }
    }

    /// Includes this machine even if it is in a crate that nothing else references.
    pub fn machine<M: Machine>(self) -> Self {
        TestBedBuilder { builder: self.builder.machine::<M>() }
    }

    /// Serves only this machine and others that are named with `only` or `machine`. By default a test bed serves all machines that are
    /// registered in the program.
    pub fn only<M: Machine>(self) -> Self {
        TestBedBuilder { builder: self.builder.only::<M>() }
    }

    /// Declares a limit for the verbs with `#[verb(limit = "…")]` of this name.
    pub fn limit(self, name: impl Into<String>, setting: LimitSetting) -> Self {
        TestBedBuilder { builder: self.builder.limit(name, setting) }
    }

    /// Changes any other setting of the runtime. Unlike a runtime, a test bed keeps ended instances forever unless a retention is set.
    /// The poll interval has no effect, and the lease is measured by the test's clock.
    pub fn with(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        TestBedBuilder { builder: change(self.builder) }
    }

    /// Adds a schedule, as [`Builder::schedule`]. [`advance`](TestBed::advance) stops at each of its moments.
    pub fn schedule(self, schedule: DeclaredSchedule) -> Self {
        TestBedBuilder { builder: self.builder.schedule(schedule) }
    }

    /// Maps names that the code no longer has to the names that replace them.
    pub fn migrate(self, mapping: Migrate) -> Self {
        TestBedBuilder { builder: self.builder.migrate(mapping) }
    }

    /// Starts on SQLite in memory.
    ///
    /// # Panics
    ///
    /// If the value of a verb's `Data<T>` is missing, or the engine does not start.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(self) -> TestBed {
        self.open("sqlite::memory:", Origin::Memory).await.unwrap_or_else(|error| panic!("the test bed does not start: {error}"))
    }

    /// Starts on PostgreSQL, in a fresh database that is dropped with the test bed. The server is the one at the URL `FSM_TEST_POSTGRES`,
    /// or else a temporary one that is started from the installed binaries.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL, or the engine does not start.
    #[cfg(feature = "postgres")]
    pub async fn postgres(self) -> TestBed {
        let fresh = Fresh::migrated().await.unwrap_or_else(|error| panic!("the test bed needs PostgreSQL: {error}"));
        let url = fresh.url().to_owned();
        self.open(&url, Origin::Fresh(Arc::new(fresh))).await.unwrap_or_else(|error| panic!("the test bed does not start: {error}"))
    }

    /// Starts on PostgreSQL with this number of partitions, in two fresh databases. The second one is on the server that
    /// `FSM_TEST_POSTGRES_SECOND` names, if it is set. The clock and the crash points are those of all partitions.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL, or the engine does not start.
    #[cfg(feature = "postgres")]
    pub async fn partitions(self, partitions: u32) -> TestBed {
        let opened = async { TestBed::start(self.builder, TestDatabase::partitioned(partitions).await?).await };
        opened.await.unwrap_or_else(|error| panic!("the test bed does not start: {error}"))
    }

    /// Starts on the database at `url`, which is kept.
    ///
    /// # Panics
    ///
    /// If the engine does not start.
    pub async fn on(self, url: &str) -> TestBed {
        self.open(url, Origin::Given).await.unwrap_or_else(|error| panic!("the test bed does not start: {error}"))
    }

    /// Starts another process on the database and with the clock of `bed`. Returns the error of its start.
    pub async fn beside(self, bed: &TestBed) -> Result<TestBed, Error> {
        TestBed::start(self.builder, bed.database.clone()).await
    }

    async fn open(self, url: &str, origin: Origin) -> Result<TestBed, Error> {
        TestBed::start(self.builder, TestDatabase::open(url, origin).await?).await
    }
}

/// The engine of a runtime with a clock that only the test moves. The call that a send starts runs at once. All other due work runs when
/// the test bed [runs until idle](TestBed::run_until_idle) or [advances](TestBed::advance).
pub struct TestBed {
    pub(super) engines: Engines,
    /// The connection that renews the lease, for each partition.
    pub(super) lease_keepers: Vec<Mutex<DedicatedConnection>>,
    builder: Builder,
    database: TestDatabase,
    pub(super) is_examined: bool,
}

impl TestBed {
    /// Creates a builder.
    pub fn builder() -> TestBedBuilder {
        TestBedBuilder::default()
    }

    async fn start(builder: Builder, database: TestDatabase) -> Result<TestBed, Error> {
        let (mut engines, mut lease_keepers) = (Vec::new(), Vec::new());
        let catalog = Catalog::new(&builder.machines, builder.only_named)?;
        let mappings = builder.check_drift(&catalog, &database.databases().collect::<Vec<_>>()).await?;
        for opened in database.databases() {
            let catalog = Catalog::new(&builder.machines, builder.only_named)?;
            builder.data_protection.check()?;
            let (opened, work) = builder.join_one(&catalog, opened, mappings.clone(), Duration::ZERO).await?;
            lease_keepers.push(Mutex::new(opened.store.dedicated().await?));
            engines.push(Engine::new(opened, catalog, (builder.limits, builder.data_protection.clone()), Some(work)));
        }
        let engines = Engines::new(engines);
        engines.all().iter().for_each(Engine::start_lanes);
        let bed = TestBed { engines, lease_keepers, builder, database, is_examined: true };
        bed.renew(bed.now()).await?;
        Ok(bed)
    }

    /// The engine, or that of the first partition.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.engines.first()
    }

    /// Returns a typed handle. It stays valid over a [`restart`](TestBed::restart).
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(self.engines.clone(), None)
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Timestamp {
        self.engine().clock.now()
    }

    /// Runs all work that is due now and all that follows from it, including running verbs. Returns when nothing is due.
    ///
    /// # Panics
    ///
    /// If the database fails.
    pub async fn run_until_idle(&self) {
        self.try_run_until_idle().await.unwrap_or_else(|error| panic!("the test bed does not become idle: {error}"));
    }

    pub(super) async fn try_run_until_idle(&self) -> Result<(), Error> {
        for turn in 0.. {
            self.quiet().await;
            self.renew(self.now()).await?;
            let mut found = 0;
            for engine in self.engines.all() {
                found += engine.sweep().await?
                    + engine.send_scheduled().await?
                    + engine.find_due(turn).await?
                    + engine.claim_permitted().await?
                    + engine.release_permits().await
                    + engine.check_permits(fsm_core::ids::InstanceId(uuid::Uuid::nil())).await?.0
                    + engine.deliver_all().await?
                    + engine.deliver_to_partitions().await?
                    + engine.look_at_all_families().await?
                    + engine.prune(&mut PrunerPosition::default()).await?
                    + engine.reconcile().await?;
            }
            self.quiet().await;
            if found == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Moves the clock forward by `span`. It stops at each time at which something is due, in order, and runs until idle there.
    ///
    /// # Panics
    ///
    /// If the database fails.
    pub async fn advance(&self, span: Duration) {
        self.try_advance(span).await.unwrap_or_else(|error| panic!("the test bed does not advance: {error}"));
    }

    /// Moves the clock forward to `moment`, as [`advance`](TestBed::advance): it stops at each time at which something is due.
    ///
    /// # Panics
    ///
    /// If the clock is past `moment` already, or the database fails.
    pub async fn advance_to(&self, moment: impl Into<Timestamp>) {
        let (moment, now) = (moment.into(), self.now());
        assert!(moment >= now, "the clock shows {now}, which is later than {moment}: it only goes forward");
        self.advance(moment - now).await;
    }

    pub(super) async fn try_advance(&self, span: Duration) -> Result<(), Error> {
        let end = self.now() + span;
        loop {
            self.try_run_until_idle().await?;
            let next = self.next_moment().await?.filter(|next| *next > self.now() && *next <= end).unwrap_or(end);
            // The lease is renewed for the time after the jump, so that no other test bed takes this process for dead.
            self.renew(next).await?;
            self.database.set_time(next);
            if next == end {
                return self.try_run_until_idle().await;
            }
        }
    }

    /// Replaces the process by a new one, at the same time. Attempts that were running are lost when the lease of the old process ends.
    ///
    /// # Panics
    ///
    /// If the database fails.
    pub async fn restart(&self) {
        self.try_restart().await.unwrap_or_else(|error| panic!("the test bed does not restart: {error}"));
    }

    async fn try_restart(&self) -> Result<(), Error> {
        self.end_tasks().await;
        for (engine, lease_keeper) in self.engines.all().iter().zip(&self.lease_keepers) {
            engine.queue.reopen();
            if let Some(work) = &engine.work {
                work.session.begin_anew();
                work.failures.forget();
            }
            *lease_keeper.lock().await = engine.store.dedicated().await?;
            engine.start_lanes();
        }
        self.renew(self.now()).await
    }

    /// Lets `span` pass without a running process, and then starts a new one.
    ///
    /// # Panics
    ///
    /// If the database fails.
    pub async fn outage(&self, span: Duration) {
        self.end_tasks().await;
        self.database.set_time(self.now() + span);
        self.restart().await;
    }

    /// Starts a test bed with the same settings on a fresh database of the same kind.
    pub(super) async fn another(&self) -> Result<TestBed, Error> {
        let like_it = TestBedBuilder { builder: self.builder.clone() };
        match &self.database.origin {
            #[cfg(feature = "postgres")]
            Origin::Fresh(_) => Ok(like_it.postgres().await),
            #[cfg(feature = "postgres")]
            Origin::Partitioned(partitions, _) => Ok(like_it.partitions(*partitions).await),
            #[cfg(feature = "sqlite")]
            Origin::Memory => Ok(like_it.sqlite().await),
            Origin::Given => {
                let url = self.url();
                Err(Error::input(format!("the database at `{url}` cannot be created afresh: take `.sqlite()` or `.postgres()`")))
            }
        }
    }

    /// Returns the invariants that do not hold; none in a consistent database. A test bed checks them itself when it is dropped.
    ///
    /// # Panics
    ///
    /// If the database fails.
    pub async fn check_invariants(&self) -> Vec<Invariant> {
        self.engines.check_invariants().await.unwrap_or_else(|error| panic!("the invariants cannot be checked: {error}"))
    }

    /// Ends the tasks of all partitions, as a crash does.
    pub(super) async fn end_tasks(&self) {
        for engine in self.engines.all() {
            engine.end_tasks().await;
        }
    }

    /// Drops the test bed without checking the invariants, for tests that break rows or the database.
    pub fn skip_invariant_check(mut self) {
        self.is_examined = false;
    }

    /// Returns the URL of the test bed's database.
    pub fn url(&self) -> &str {
        &self.database.url
    }

    /// Returns the number of partitions: 1 for a database without them.
    pub fn partitions(&self) -> u32 {
        self.engines.all().len() as u32
    }

    /// Returns the next time at which something is due: an attempt, a timer, a schedule, or the end of a dead session's lease.
    async fn next_moment(&self) -> Result<Option<Timestamp>, Error> {
        let mut moments = Vec::new();
        for engine in self.engines.all() {
            moments.extend([engine.next_due().await?, engine.next_for_partitions().await?]);
            moments.extend([engine.next_permitted().await?, engine.next_permit_check().await?]);
            let Some(work) = &engine.work else { continue };
            moments.push(engine.next_scheduled().await?);
            let mut reader = engine.store.reader().await?;
            moments.push(sessions::next_lapse(&mut reader.conn(), work.session.id()).await?);
            moments.extend([work.failures.orphans.next(), work.failures.schedules.next()]);
        }
        Ok(moments.into_iter().flatten().filter(|moment| *moment > self.now()).min())
    }

    /// Renews the leases. The sessions count as alive until one lease duration after `horizon`.
    async fn renew(&self, horizon: Timestamp) -> Result<(), Error> {
        for (engine, lease_keeper) in self.engines.all().iter().zip(&self.lease_keepers) {
            let Some(work) = &engine.work else { continue };
            let mut connection = lease_keeper.lock().await;
            // An earlier renewal may have been dropped half-way.
            if !connection.is_usable() {
                *connection = engine.store.dedicated().await?;
            }
            work.session.renew(&mut connection, &engine.clock, horizon, work.unreported().len()).await?;
        }
        Ok(())
    }

    /// Waits until no attempt runs and no commit is in progress.
    async fn quiet(&self) {
        // A verb of one partition may send to another, so all of them must be idle at the same time.
        while let Some((engine, work)) = self.busy() {
            let ended = work.ended.notified();
            engine.queue.emptied().await;
            if !work.running().is_empty() || !engine.queue.is_idle() {
                // A notification between the check and the wait is lost. The next check finds the test bed idle.
                let _ = tokio::time::timeout(LOOK, ended).await;
            }
        }
    }

    /// The first engine with an attempt that runs or a commit in progress.
    fn busy(&self) -> Option<(&Arc<Engine>, &Work)> {
        let mut all = self.engines.all().iter().filter_map(|engine| Some((engine, engine.work.as_ref()?)));
        all.find(|(engine, work)| !work.running().is_empty() || !engine.queue.is_idle())
    }
}

impl From<&TestBed> for EngineAccess {
    fn from(bed: &TestBed) -> EngineAccess {
        EngineAccess::new(&bed.engines, None)
    }
}

//! The start of a runtime: the database is opened, the machines are stored, a session begins, and the tasks run.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::partition::Partition;
use fsm_core::preference::code_of;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;
use fsm_store::claim::Served;
use fsm_store::open::Store;
use fsm_store::settings::Settings;
use futures_util::future::try_join_all;
use tokio::sync::{Notify, Semaphore};

use super::shutdown::ShutdownHandle;
use super::{Builder, RETENTION, Runtime};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::drift;
use crate::engine::{Engine, OpenDatabase, Work};
use crate::engines::Engines;
use crate::error::{Error, ErrorKind};
use crate::failing::Failures;
use crate::health::DatabaseHealth;
use crate::heartbeats::Heartbeats;
use crate::preference::Preference;
use crate::priority_shares::PriorityShares;
use crate::process;
use crate::reconciler_state::{Mappings, ReconcilerState};
use crate::schedule::{self, Planned};
use crate::session::Session;
use crate::start::{Registered, at_last, open, patiently, prepare, register_machines};

impl Builder {
    /// Opens the database, migrates its tables and starts the workers. A database that is unavailable is tried again until the
    /// [patience](Builder::patience) ends. A partition that is unavailable joins when it can be reached, if another one could.
    ///
    /// Errors: the value for a verb's `Data<T>` is missing (the text names both); the [limit](Builder::limit) of a verb is missing (the text
    /// names both, and the limits that exist); a [schedule](Builder::schedule) is invalid; `is_drift` if rows need states, verbs or events that the
    /// code lacks (the text names all of them, the number of rows and their age); and those of [`Client::connect`].
    ///
    /// [`Client::connect`]: crate::client::Client::connect
    pub async fn start(mut self) -> Result<Runtime, Error> {
        self.retention.get_or_insert(RETENTION);
        let catalog = Catalog::new(&self.machines, self.only_named)?;
        catalog.check_data(&self.data)?;
        self.data_protection.check()?;
        schedule::plan(&self.schedules)?;
        let joined = patiently(self.limits.patience, |left| Box::pin(self.join(&catalog, left))).await?;
        let (mut engines, mut are_prepared) = (Vec::with_capacity(joined.len()), Vec::with_capacity(joined.len()));
        for (database, work) in joined {
            // Each engine has its own metrics of the machines.
            let catalog = Catalog::new(&self.machines, self.only_named)?;
            are_prepared.push(database.is_prepared);
            engines.push(Engine::new(database, catalog, (self.limits, self.data_protection.clone()), Some(work)));
        }
        let engines = Engines::new(engines);
        let heartbeats = Heartbeats::start()
            .map_err(|error| Error::other(ErrorKind::System, format!("the thread for the lease could not start: {error}")))?;
        let (shutdown, builder) = (ShutdownHandle::new(engines.clone(), self.shutdown_timeout), Arc::new(self));
        for (engine, is_prepared) in engines.all().iter().zip(are_prepared) {
            if is_prepared {
                start_work(engine, &heartbeats);
            } else {
                engine.observations.note(|observed| observed.database = DatabaseHealth::Unreachable("not reached since the start".into()));
                engine.spawn(start_later(Arc::clone(&builder), Arc::clone(engine), heartbeats.clone()));
            }
        }
        Ok(Runtime { engines, shutdown })
    }

    /// Opens the database or its partitions, stores the machine definitions and starts a session in each.
    async fn join(&self, catalog: &Catalog, limit: Duration) -> Result<Vec<(OpenDatabase, Work)>, Error> {
        let databases = open(self.settings(), limit).await?;
        let mappings = self.check_drift(catalog, &databases).await?;
        try_join_all(databases.into_iter().map(|database| self.join_and_renew(catalog, database, mappings.clone()))).await
    }

    /// Checks that the code has all names that rows need, in all partitions that can be reached. No partition is changed if one of them needs more.
    pub(crate) async fn check_drift(&self, catalog: &Catalog, databases: &[OpenDatabase]) -> Result<Mappings, Error> {
        let stores: Vec<_> = databases.iter().filter(|database| database.is_prepared).map(|database| &database.store).collect();
        drift::check(&stores, catalog, &self.migrate).await
    }

    async fn join_and_renew(&self, catalog: &Catalog, database: OpenDatabase, mappings: Mappings) -> Result<(OpenDatabase, Work), Error> {
        let (database, work) = self.join_one(catalog, database, mappings, self.lease).await?;
        if database.is_prepared {
            begin_session(&work, &database.store, &database.clock).await?;
        }
        Ok((database, work))
    }

    /// Stores the machine definitions, the limits and the schedules of the program. `grace` is the time for which the session must have renewed its
    /// lease in time before it sweeps.
    pub(crate) async fn join_one(
        &self,
        catalog: &Catalog,
        database: OpenDatabase,
        mappings: Mappings,
        grace: Duration,
    ) -> Result<(OpenDatabase, Work), Error> {
        let OpenDatabase { store, clock, partition, .. } = &database;
        let begun = clock.now();
        // A schedule has its row in one partition.
        let mut schedules = schedule::plan(&self.schedules)?;
        schedules.retain(|planned| partition.is_none_or(|partition| partition.has(&planned.name)));
        let registered = match database.is_prepared {
            true => self.register(catalog, (store, clock), mappings, &schedules).await?,
            false => Registered::default(),
        };
        let partitions = partition.map_or(1, Partition::of);
        let preference = Preference::new(*partition, self.poll);
        let work = Work { schedules, preference, ..self.work(catalog, grace, registered, begun, partitions) };
        Ok((database, work))
    }

    async fn register(
        &self,
        catalog: &Catalog,
        (store, clock): (&Store, &Clock),
        mappings: Mappings,
        schedules: &[Planned],
    ) -> Result<Registered, Error> {
        let data = (&self.data, &self.data_protection);
        let registered = register_machines(store, clock, catalog, data, mappings, &self.declared_limits).await?;
        schedule::declaring::declare_all(store, clock.now(), schedules).await?;
        Ok(registered)
    }

    /// Does for a partition that could not be reached what the start does for the others.
    async fn join_later(&self, engine: &Engine) -> Result<(), Error> {
        let Some(work) = &engine.work else { return Ok(()) };
        prepare(engine).await?;
        let begun = engine.clock.now();
        let mappings = drift::check(&[&engine.store], &engine.catalog, &self.migrate).await?;
        let registered = self.register(&engine.catalog, (&engine.store, &engine.clock), mappings, &work.schedules).await?;
        work.has_limits.store(registered.has_limits, Ordering::Release);
        *work.reconciler_state.lock().await = ReconcilerState::since(begun, registered.mappings);
        begin_session(work, &engine.store, &engine.clock).await
    }

    fn work(&self, catalog: &Catalog, grace: Duration, registered: Registered, now: Timestamp, partitions: u32) -> Work {
        // Each partition has its own share, so that attempts whose outcome one of them does not accept take no slot from the others.
        let share = |all: u32| all.div_ceil(partitions) as usize;
        Work {
            session: Session::new(self.process(), code(&catalog.served()), self.lease, grace),
            shares: PriorityShares::of(catalog.served().into_iter().map(|served| {
                let is_fair = catalog.get(&served.machine).is_some_and(|known| known.machine.fair_by.is_some());
                (served.machine, is_fair)
            })),
            failures: Failures::of(catalog.served().len()),
            served: catalog.served(),
            data: self.data.clone(),
            schedules: Vec::new(),
            has_parent_from_send: self.has_parent_from_send,
            slots: Arc::new(Semaphore::new(share(self.concurrency))),
            slot_count: share(self.concurrency),
            poll: self.poll,
            preference: Preference::new(None, self.poll),
            retention: self.retention,
            has_limits: AtomicBool::new(registered.has_limits),
            limits_taken_until: AtomicI64::new(i64::MIN),
            reconciler_state: tokio::sync::Mutex::new(ReconcilerState::since(now, registered.mappings)),
            running: Mutex::default(),
            is_shutting_down: AtomicBool::new(false),
            stop: Notify::new(),
            delivers: tokio::sync::Mutex::default(),
            ended: Notify::new(),
            progress: Arc::default(),
            blocking: Arc::new(Semaphore::new(share(self.blocking_threads))),
            scanned: Mutex::new(InstanceId(uuid::Uuid::nil())),
        }
    }

    fn process(&self) -> ProcessIdentity {
        let process = process::identity();
        #[cfg(feature = "testing")]
        if self.is_in_a_container {
            return ProcessIdentity { place: None, ..process };
        }
        process
    }

    fn settings(&self) -> Settings {
        let url = self.database.clone().or_else(|| std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()));
        let mut settings = Settings::new(url.unwrap_or_else(|| "sqlite://fsm.db".to_owned()));
        settings.connections = self.connections.unwrap_or(settings.connections);
        settings.synchronous = self.synchronous.unwrap_or(settings.synchronous);
        settings.deadline = self.deadline.unwrap_or(settings.deadline);
        settings.statement_cache = settings.statement_cache && self.statement_cache;
        settings
    }
}

/// Starts the work on a partition when it can be reached.
async fn start_later(builder: Arc<Builder>, engine: Arc<Engine>, heartbeats: Heartbeats) {
    if at_last(&engine, || Box::pin(builder.join_later(&engine))).await {
        start_work(&engine, &heartbeats);
    }
    if engine.queue.is_closed() {
        // The process ended meanwhile, and may not have seen the tasks that have just started.
        engine.kill();
    }
}

/// The number of the code that a process serves.
fn code(served: &[Served]) -> i64 {
    code_of(served.iter().flat_map(|served| {
        let parts = [&served.verbs, &served.states, &served.timed, &served.events];
        // Each list begins with an empty name, so that a name in another list makes another number.
        std::iter::once(served.machine.as_str())
            .chain(parts.into_iter().flat_map(|names| std::iter::once("").chain(names.iter().map(String::as_str))))
    }))
}

async fn begin_session(work: &Work, store: &Store, clock: &Clock) -> Result<(), Error> {
    Ok(work.session.renew(&mut store.dedicated().await?, clock, clock.now(), 0).await?)
}

/// Starts the tasks of a worker on one database or partition.
fn start_work(engine: &Arc<Engine>, heartbeats: &Heartbeats) {
    let Some(work) = &engine.work else { return };
    engine.start_lanes();
    engine.keep_running("finder", Engine::find_loop);
    engine.keep_running("sweeper", Engine::sweep_loop);
    engine.keep_running("outbox", Engine::outbox_loop);
    if engine.partition.is_some() {
        engine.keep_running("partition outbox", Engine::partition_outbox_loop);
        engine.keep_running("claims with permits", Engine::claim_permitted_loop);
        engine.keep_running("permits", Engine::permit_loop);
    }
    engine.keep_running("families", Engine::families_loop);
    engine.keep_running("progress", Engine::progress_loop);
    if !work.schedules.is_empty() {
        engine.keep_running("schedules", Engine::schedule_loop);
    }
    engine.keep_running("pruner", Engine::prune_loop);
    engine.keep_running("reconciler", Engine::reconcile_loop);
    engine.keep_running("listener", Engine::listen_loop);
    engine.keep_running("observer", Engine::observe_loop);
    engine.start_notifying();
    let counted = Arc::downgrade(engine);
    let unreported = move || counted.upgrade().and_then(|engine| Some(engine.work.as_ref()?.unreported().len())).unwrap_or(0);
    heartbeats.keep_alive(work.session.clone(), engine.store.clone(), engine.clock.clone(), unreported);
}

//! The start of a runtime: the database is opened, the machines are stored, a session begins, and the tasks run.

use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_core::ids::InstanceId;
use fsm_core::process::ProcessIdentity;
use fsm_core::time::Timestamp;
use fsm_store::open::Store;
use fsm_store::settings::Settings;
use tokio::sync::{Notify, Semaphore};

use super::shutdown::ShutdownHandle;
use super::{Builder, RETENTION, Runtime};
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::engine::{Engine, Work};
use crate::error::{Error, ErrorKind};
use crate::failing::Failures;
use crate::priority_shares::PriorityShares;
use crate::process;
use crate::reconciler_state::ReconcilerState;
use crate::schedule;
use crate::session::Session;
use crate::start::{Registered, open, patiently, register_machines};

impl Builder {
    /// Opens the database, migrates its tables and starts the workers. A database that is unavailable is tried again until the
    /// [patience](Builder::patience) ends.
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
        let (store, clock, work) = patiently(self.limits.patience, |left| Box::pin(self.join(&catalog, left))).await?;
        let session = work.session.clone();
        let engine = Engine::new(store.clone(), clock.clone(), catalog, (self.limits, self.data_protection), Some(work));
        engine.start_lanes();
        engine.keep_running("finder", Engine::find_loop);
        engine.keep_running("sweeper", Engine::sweep_loop);
        engine.keep_running("outbox", Engine::outbox_loop);
        engine.keep_running("families", Engine::families_loop);
        engine.keep_running("progress", Engine::progress_loop);
        if engine.work.as_ref().is_some_and(|work| !work.schedules.is_empty()) {
            engine.keep_running("schedules", Engine::schedule_loop);
        }
        engine.keep_running("pruner", Engine::prune_loop);
        engine.keep_running("reconciler", Engine::reconcile_loop);
        engine.keep_running("listener", Engine::listen_loop);
        engine.keep_running("observer", Engine::observe_loop);
        engine.start_notifying();
        let counted = Arc::downgrade(&engine);
        let unreported = move || counted.upgrade().and_then(|engine| Some(engine.work.as_ref()?.unreported().len())).unwrap_or(0);
        session
            .keep_alive(store, clock, unreported)
            .map_err(|error| Error::other(ErrorKind::System, format!("the thread for the lease could not start: {error}")))?;
        let shutdown = ShutdownHandle::new(Arc::clone(&engine), self.shutdown_timeout);
        Ok(Runtime { engine, shutdown })
    }

    /// Opens the database, stores the machine definitions and starts a session.
    async fn join(&self, catalog: &Catalog, limit: Duration) -> Result<(Store, Clock, Work), Error> {
        let (store, clock) = open(self.settings(), limit).await?;
        let begun = clock.now();
        let data = (&self.data, &self.data_protection);
        let registered = register_machines(&store, &clock, catalog, data, &self.migrate, &self.declared_limits).await?;
        let schedules = schedule::plan(&self.schedules)?;
        schedule::declaring::declare_all(&store, clock.now(), &schedules).await?;
        let work = Work { schedules, ..self.work(catalog, self.lease, registered, begun) };
        work.session.renew(&mut store.dedicated().await?, &clock, clock.now(), 0).await?;
        Ok((store, clock, work))
    }

    pub(crate) fn work(&self, catalog: &Catalog, grace: Duration, registered: Registered, now: Timestamp) -> Work {
        Work {
            session: Session::new(self.process(), self.lease, grace),
            shares: PriorityShares::of(catalog.served().into_iter().map(|served| {
                let is_fair = catalog.get(&served.machine).is_some_and(|known| known.machine.fair_by.is_some());
                (served.machine, is_fair)
            })),
            failures: Failures::of(catalog.served().len()),
            served: catalog.served(),
            data: self.data.clone(),
            schedules: Vec::new(),
            has_parent_from_send: self.has_parent_from_send,
            slots: Arc::new(Semaphore::new(self.concurrency as usize)),
            slot_count: self.concurrency as usize,
            poll: self.poll,
            retention: self.retention,
            limits: registered.limits,
            limits_taken_until: AtomicI64::new(i64::MIN),
            reconciler_state: tokio::sync::Mutex::new(ReconcilerState::since(now, registered.mappings)),
            running: Mutex::default(),
            is_shutting_down: AtomicBool::new(false),
            ended: Notify::new(),
            progress: Arc::default(),
            blocking: Arc::new(Semaphore::new(self.blocking_threads as usize)),
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

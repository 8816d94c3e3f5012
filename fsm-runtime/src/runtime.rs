//! A process that works: what it is built from, and how it starts.

pub mod shutdown;
mod signals;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::codec::PayloadCodec;
use crate::data::DataMap;
use crate::data_protection::DataProtection;
use crate::drift::Migrate;
use crate::engine::{Engine, Work};
use crate::engine_access::EngineAccess;
use crate::error::{Error, ErrorKind};
use crate::failing::Failures;
use crate::handle::Handle;
use crate::limits::{Limits, SHORTEST_PATIENCE};
use crate::reconciler_state::ReconcilerState;
use crate::redact::{Redactable, Redaction};
use crate::registry::{Machine, MachineEntry};
use crate::running::UnreportedAttempt;
use crate::session::Session;
use crate::start::{introduce, open, patiently};
use crate::store::invariants::Invariant;
use crate::store::open::{Settings, Store, Synchronous};
use shutdown::ShutdownHandle;
use signals::Signals;

/// A process that works: it sends, looks, and runs verbs. When it is dropped without [`shutdown`](Runtime::shutdown) its
/// work ends at once, as it would by the process's death, and nothing is lost but time.
pub struct Runtime {
    pub(crate) engine: Arc<Engine>,
    shutdown: ShutdownHandle,
}

/// A shorter lease runs out while its owner lives.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// One for each purpose.
const FEWEST_CONNECTIONS: u32 = 3;
/// A shorter pause is no pause.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
/// Nothing is done in a shorter time.
const SHORTEST_OPERATION: Duration = Duration::from_millis(1);
/// A century: what is longer is taken as this.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What a runtime is built from.
#[derive(Clone)]
pub struct Builder {
    pub(crate) database: Option<String>,
    pub(crate) data: DataMap,
    pub(crate) machines: Vec<&'static MachineEntry>,
    pub(crate) only_named: bool,
    pub(crate) concurrency: u32,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) limits: Limits,
    pub(crate) data_protection: DataProtection,
    pub(crate) connections: Option<u32>,
    pub(crate) synchronous: Option<Synchronous>,
    pub(crate) statement_cache: bool,
    pub(crate) deadline: Option<Duration>,
    pub(crate) migrate: Vec<Migrate>,
    pub(crate) retention: Option<Duration>,
}

/// How long a runtime keeps ended instances unless it is told.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            database: None,
            data: DataMap::default(),
            machines: Vec::new(),
            only_named: false,
            concurrency: 256,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(20),
            limits: Limits::default(),
            data_protection: DataProtection::default(),
            connections: None,
            synchronous: None,
            statement_cache: true,
            deadline: None,
            migrate: Vec::new(),
            retention: None,
        }
    }
}

impl Builder {
    /// The database: `sqlite://payments.db`, `sqlite::memory:` or `postgres://…`. Without it `$DATABASE_URL`, else
    /// `sqlite://fsm.db`.
    ///
    /// A PostgreSQL URL may name several servers, as libpq's do: `postgres://user@h1:5432,h2:5433/db`. Each connection goes to the one that
    /// `target_session_attrs` describes: `read-write` unless set. `connect_timeout` is the limit for each server in seconds, 5 unless set.
    ///
    /// # Encryption of the connection to PostgreSQL
    ///
    /// The URL's parameter `sslmode`, or the variable `PGSSLMODE`, is one of:
    ///
    /// | `sslmode` | the connection | protects against |
    /// |---|---|---|
    /// | `disable`, `allow` | is never encrypted | nothing |
    /// | `prefer`, the default | is encrypted if the server offers it | a listener, but nobody who can change packets: such a person answers that there is no encryption |
    /// | `require` | is encrypted, and the certificate is not checked | a listener |
    /// | `verify-ca` | is encrypted, and the certificate is signed by a trusted authority | an active attacker without a certificate of that authority |
    /// | `verify-full` | the same, and the certificate is for the host name of the URL | an active attacker |
    ///
    /// In production use `verify-full`:
    /// `postgres://app@db.internal/payments?sslmode=verify-full&sslrootcert=/etc/ssl/db-ca.pem`. `sslrootcert` (`PGSSLROOTCERT`) is a PEM
    /// file with the authorities that are trusted; without it those of the operating system are. `sslcert` and `sslkey` (`PGSSLCERT`,
    /// `PGSSLKEY`) are this client's own certificate and key. A connection through a Unix socket is not encrypted.
    ///
    /// # Who can read a SQLite file
    ///
    /// The file, its `-wal` and its `-shm` are created with the permissions that the process's umask leaves, often readable by everybody.
    /// Start the process with umask 077, or keep the file in a directory of its own with mode 0700.
    pub fn database(mut self, url: impl Into<String>) -> Self {
        self.database = Some(url.into());
        self
    }

    /// A value for the verbs that take `Data<T>`; one a type, the last one counts.
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.put(Arc::new(value));
        self
    }

    /// A value for the verbs that take `Data<T>`, where the program has it as an `Arc` already. `T` may be a trait:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use fsm_runtime::runtime::Runtime;
    /// trait Gateway: Send + Sync {}
    /// struct Stripe;
    /// impl Gateway for Stripe {}
    /// let gateway: Arc<dyn Gateway> = Arc::new(Stripe);
    /// let builder = Runtime::builder().data_arc(gateway);         // for verbs with a parameter `gateway: Data<dyn Gateway>`
    /// ```
    pub fn data_arc<T: ?Sized + Send + Sync + 'static>(mut self, value: Arc<T>) -> Self {
        self.data.put(value);
        self
    }

    /// Links this machine for certain, also from a crate that nothing else references.
    pub fn machine<M: Machine>(mut self) -> Self {
        self.machines.push(M::ENTRY);
        self
    }

    /// Works for this machine, and for no others than those named so. Without it a runtime works for every machine that
    /// is registered in the program.
    pub fn only<M: Machine>(mut self) -> Self {
        self.only_named = true;
        self.machine::<M>()
    }

    /// How many attempts may execute at the same time; 256 unless set, at least 1.
    pub fn concurrency(mut self, attempts: u32) -> Self {
        self.concurrency = attempts.max(1);
        self
    }

    /// The lease duration; 30 s unless set, at least 100 ms, at most a century. If this process renews it no more, other processes treat its
    /// running attempts as lost after this time.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(SHORTEST_LEASE, LONGEST);
        self
    }

    /// How long due work of other processes waits at most until this one looks; 1 s unless set, at least 1 ms.
    pub fn poll_interval(mut self, poll: Duration) -> Self {
        self.poll = poll.clamp(SHORTEST_POLL, LONGEST);
        self
    }

    /// The time that [`Runtime::shutdown`] lets running attempts finish before it releases them; 20 s unless set. It returns at most two
    /// seconds after that.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout.min(LONGEST);
        self
    }

    /// The time that a send or an operator's act may wait without progress, and [`start`](Builder::start); 10 s unless set, at least 100 ms. While the
    /// database cannot be used, requests are retried for so long; then the caller gets the error. The end of an attempt is retried for as
    /// long as the process lives.
    pub fn patience(mut self, limit: Duration) -> Self {
        self.limits.patience = limit.max(SHORTEST_PATIENCE);
        self
    }

    /// The most bytes of one event's payload; 256 KiB unless set.
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.limits.payload = bytes;
        self
    }

    /// How many events may wait for one instance; 1,000 unless set.
    pub fn inbox_limit(mut self, events: u64) -> Self {
        self.limits.inbox = events;
        self
    }

    /// What takes secrets out of texts: called with each error text before it is stored and logged, and with payloads and records
    /// before an operator's tool shows them. `None` leaves a text as it is. If `redact` panics, the whole text is withheld.
    ///
    /// ```
    /// # use fsm_runtime::redact::RedactableKind;
    /// # use fsm_runtime::runtime::Runtime;
    /// let builder = Runtime::builder().redact(|shown| match shown.kind {
    ///     RedactableKind::Error => None,
    ///     _ => Some(format!("({} bytes)", shown.text.len())),
    /// });
    /// ```
    pub fn redact(mut self, redact: impl Fn(&Redactable<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        self.data_protection.redaction = Redaction::by(redact);
        self
    }

    /// What encodes payloads, records, error texts and what `ctx.once` keeps, on their way into the database. Every process on a
    /// database needs the same one. Values from before there was a codec are read as they are.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.data_protection.codec = Some(Arc::new(codec));
        self
    }

    /// Reads only payloads, records and memoised effects that the [`codec`](Builder::codec) sealed; unless set, values that are stored as
    /// they are, from before there was a codec, are read too. An attempt that would be given such a value fails, its verb does not run, and
    /// its error says why; the retry policy applies. Who can write to the database but has no key can then have no verb run with
    /// content of their own. The content of a `Timeout` is the engine's, and stored as it is.
    ///
    /// [`start`](Builder::start) fails if there is no codec.
    pub fn require_sealed(mut self) -> Self {
        self.data_protection.requires_sealed = true;
        self
    }

    /// The most connections to PostgreSQL; 8 unless set, at least 3, beside two: one for the lease and one that listens.
    ///
    /// At most half of them, rounded down, are lent to verbs by `ctx.postgres()` at a time, and a quarter of them, at least one, is used for nothing
    /// but commits, claims and sweeps; the rest serves looks and `ctx.once`, and the engine too. Of 8 that is 4, 2 and 2, of 3 one each: so
    /// verbs that hold a connection for long delay other verbs that want one, and nothing else.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = Some(connections.max(FEWEST_CONNECTIONS));
        self
    }

    /// What SQLite waits for before a commit is acknowledged; [`Synchronous::Full`] unless set.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = Some(synchronous);
        self
    }

    /// The time that one operation of the database may take: a statement, a commit, the wait for a connection; 30 s unless set, at least
    /// 1 ms. Then its connection is closed, and the operation is retried on another one.
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit.clamp(SHORTEST_OPERATION, LONGEST));
        self
    }

    /// Prepares no statements on PostgreSQL's connections: for poolers in transaction mode. The URL's parameter
    /// `statement-cache-capacity=0` says the same, also to a [`Client`](crate::client::Client).
    pub fn without_statement_cache(mut self) -> Self {
        self.statement_cache = false;
        self
    }

    /// How long the past is kept: an instance after it ended, with its calls, its history and its dedup ids; 30 days unless set,
    /// `Duration::MAX` for ever. Then its key is free. One that a delayed event waits for is kept until that was delivered.
    ///
    /// Of an instance that lives, attempts that ended, notes of its history and dedup ids go as long after, but for what it may yet need: its
    /// newest call (of a long one the first attempt and the last ones), and what that caught. What `ctx.once` keeps for calls that are
    /// closed goes too.
    pub fn retention(mut self, span: Duration) -> Self {
        self.retention = Some(span);
        self
    }

    /// At the start, rows that bear names which the code no longer has get those that `mapping` says, a few instances at a
    /// time; each one's history tells it. Processes of the older code may go on meanwhile: what they write afterwards is
    /// mapped too, a minute after the start, two minutes after that, four and so on, at last once a day.
    pub fn migrate(mut self, mapping: Migrate) -> Self {
        self.migrate.push(mapping);
        self
    }

    /// Opens the database, brings its tables up to date and starts the workers. A database that cannot be used yet is tried again for as long
    /// as the [patience](Builder::patience).
    ///
    /// Errors: a verb takes `Data<T>` that was not given, naming both; `is_drift` when rows need states, verbs or events that
    /// the code lacks, naming all of them, how many rows and since when; what [`Client::connect`] says of databases.
    ///
    /// [`Client::connect`]: crate::client::Client::connect
    pub async fn start(mut self) -> Result<Runtime, Error> {
        self.retention.get_or_insert(RETENTION);
        let catalog = Catalog::new(&self.machines, self.only_named)?;
        catalog.check_data(&self.data)?;
        self.data_protection.check()?;
        let (store, clock, work) = patiently(self.limits.patience, |left| Box::pin(self.join(&catalog, left))).await?;
        let session = work.session.clone();
        let engine = Engine::new(store.clone(), clock.clone(), catalog, (self.limits, self.data_protection), Some(work));
        engine.start_lanes();
        engine.keep_running("finder", Engine::find_loop);
        engine.keep_running("sweeper", Engine::sweep_loop);
        engine.keep_running("pruner", Engine::prune_loop);
        engine.keep_running("mender", Engine::reconcile_loop);
        engine.keep_running("listener", Engine::listen_loop);
        engine.start_notifying();
        session
            .keep_alive(store, clock)
            .map_err(|error| Error::other(ErrorKind::System, format!("the thread for the lease could not start: {error}")))?;
        let shutdown = ShutdownHandle::new(Arc::clone(&engine), self.shutdown_timeout);
        Ok(Runtime { engine, shutdown })
    }

    /// Opens the database, makes the machines known to it, and begins a session there.
    async fn join(&self, catalog: &Catalog, limit: Duration) -> Result<(Store, Clock, Work), Error> {
        let (store, clock) = open(self.settings(), limit).await?;
        let mappings = introduce(&store, &clock, catalog, &self.data, &self.migrate).await?;
        let work = self.work(catalog, self.lease, ReconcilerState::since(clock.now(), mappings));
        work.session.renew(&mut store.dedicated().await?, &clock, clock.now()).await?;
        Ok((store, clock, work))
    }

    pub(crate) fn work(&self, catalog: &Catalog, grace: Duration, reconciler_state: ReconcilerState) -> Work {
        Work {
            session: Session::new(self.lease, grace),
            failures: Failures::of(catalog.served().len()),
            served: catalog.served(),
            data: self.data.clone(),
            slots: Arc::new(Semaphore::new(self.concurrency as usize)),
            poll: self.poll,
            retention: self.retention,
            reconciler_state: tokio::sync::Mutex::new(reconciler_state),
            running: Mutex::default(),
            is_draining: AtomicBool::new(false),
            ended: Notify::new(),
        }
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

impl Runtime {
    /// What a runtime is built from.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A typed handle to the instances of `M`.
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(Arc::clone(&self.engine), None)
    }

    /// The text as a person may see it, by what the builder's [`redact`](Builder::redact) says.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engine.data_protection.redaction.of(shown).into_owned()
    }

    /// The invariants that do not hold, of [`doctor`](crate::doctor::doctor)'s report: none in a healthy database.
    pub async fn check_invariants(&self) -> Result<Vec<Invariant>, Error> {
        self.engine.check_invariants().await
    }

    /// Attempts whose verb has ended and whose outcome could not be written to the database yet: none while it works.
    pub fn unreported(&self) -> Vec<UnreportedAttempt> {
        self.engine.work.as_ref().map(Work::unreported).unwrap_or_default()
    }

    /// Shows no more signs of life while its verbs go on, as a process does that is cut off from its database.
    #[cfg(feature = "testing")]
    pub fn stop_renewing(&self) {
        if let Some(work) = &self.engine.work {
            work.session.stop();
        }
    }

    /// Works until the process is told to stop by SIGTERM or SIGINT (Ctrl-C), or by a [`ShutdownHandle`], and then shuts down. A second
    /// signal ends the work at once: what executes then is lost, as by the death of the process.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        let mut signals = Signals::listen()
            .map_err(|error| Error::other(ErrorKind::System, format!("the process cannot listen for signals: {error}")))?;
        // No bound: the process works until then.
        tokio::select! {
            signal = signals.next() => tracing::info!(signal, "shutting down; a second signal ends at once"),
            () = self.shutdown.requested() => tracing::info!("shutting down, as a shutdown handle asked; a signal ends at once"),
        }
        tokio::select! {
            ended = self.shutdown.shutdown() => ended,
            signal = signals.next() => {
                tracing::warn!(signal, "ended at once; what executes is lost");
                self.engine.kill();
                Ok(())
            }
        }
    }

    /// Shuts down gracefully: stops claiming, waits for running attempts up to the [shutdown timeout](Builder::shutdown_timeout), releases
    /// the rest, and deregisters the worker. A released attempt uses no retry.
    ///
    /// Returns at most two seconds after the shutdown timeout, also while the database does not answer. `ErrorKind::Stopping` when attempts
    /// were left that could not be reported or released: other workers take them over once the lease of this process has ended.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.shutdown.shutdown().await
    }

    /// A handle for a program with a server of its own: it begins the graceful shutdown from anywhere, and tells the server when to stop. Keep
    /// the runtime itself: dropping it ends the work at once.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }
}

impl From<&Runtime> for EngineAccess {
    fn from(runtime: &Runtime) -> EngineAccess {
        EngineAccess::new(&runtime.engine, None)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.engine.kill();
    }
}

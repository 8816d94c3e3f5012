//! The runtime: a process that runs verbs, with its builder and its start.

pub mod shutdown;
mod signals;
mod starting;
mod stopping;

use std::sync::Arc;
use std::time::Duration;

use crate::codec::PayloadCodec;
use crate::data::DataMap;
use crate::data_protection::DataProtection;
use crate::drift::Migrate;
use crate::engine::Work;
use crate::engine_access::EngineAccess;
use crate::engines::Engines;
use crate::error::Error;
use crate::handle::Handle;
use crate::limit::{DeclaredLimits, LimitSetting};
use crate::limits::{Limits, SHORTEST_PATIENCE};
use crate::redact::{Redactable, Redaction};
use crate::registry::{Machine, MachineEntry};
use crate::running::UnreportedAttempt;
use crate::schedule::DeclaredSchedule;
use crate::start::FEWEST_CONNECTIONS;
use fsm_store::invariants::Invariant;
use fsm_store::settings::Synchronous;
use shutdown::ShutdownHandle;

/// A worker: it sends events, reads instances and runs verbs. If it is dropped without [`shutdown`](Runtime::shutdown), its work stops at
/// once, as in a crash: its running attempts count as lost when its lease has expired.
pub struct Runtime {
    pub(crate) engines: Engines,
    shutdown: ShutdownHandle,
}

/// A shorter lease could expire between two heartbeats.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
/// The minimum poll interval.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
/// The minimum time limit of one operation.
const SHORTEST_OPERATION: Duration = Duration::from_millis(1);
/// The maximum of all durations, a century. Longer values are reduced to it.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The settings of a [`Runtime`].
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
    pub(crate) schedules: Vec<DeclaredSchedule>,
    pub(crate) has_parent_from_send: bool,
    pub(crate) declared_limits: DeclaredLimits,
    pub(crate) blocking_threads: u32,
    #[cfg(feature = "testing")]
    pub(crate) is_in_a_container: bool,
}

/// The default retention time of ended instances.
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
            schedules: Vec::new(),
            has_parent_from_send: false,
            declared_limits: DeclaredLimits::new(),
            blocking_threads: 64,
            #[cfg(feature = "testing")]
            is_in_a_container: false,
        }
    }
}

impl Builder {
    /// The database: `sqlite://payments.db`, `sqlite::memory:` or `postgres://…`. The default is `$DATABASE_URL`, or else
    /// `sqlite://fsm.db`.
    ///
    /// A PostgreSQL URL may name several servers, as in libpq: `postgres://user@h1:5432,h2:5433/db`. Each connection goes to the server
    /// that fits `target_session_attrs`, `read-write` by default. `connect_timeout` is the limit for each server in seconds, 5 by default.
    ///
    /// If the database has the directory `fsm_partitions`, the runtime works on all partitions that it lists.
    ///
    /// # Encryption of the connection to PostgreSQL
    ///
    /// The URL's parameter `sslmode`, or the variable `PGSSLMODE`, is one of:
    ///
    /// | `sslmode` | the connection | protects against |
    /// |---|---|---|
    /// | `disable`, `allow` | is never encrypted | nothing |
    /// | `prefer`, the default | is encrypted if the server offers it | eavesdropping, but not an active attacker, who can answer that the server offers no encryption |
    /// | `require` | is encrypted, and the certificate is not checked | eavesdropping |
    /// | `verify-ca` | is encrypted, and the certificate is signed by a trusted authority | an active attacker without a certificate of that authority |
    /// | `verify-full` | as `verify-ca`, and the certificate matches the host name of the URL | an active attacker |
    ///
    /// In production use `verify-full`: `postgres://app@db.internal/payments?sslmode=verify-full&sslrootcert=/etc/ssl/db-ca.pem`.
    /// `sslrootcert` (`PGSSLROOTCERT`) is a PEM file with the trusted authorities. Without it, those of the operating system are trusted.
    /// `sslcert` and `sslkey` (`PGSSLCERT`, `PGSSLKEY`) are this client's own certificate and key. A connection through a Unix socket is
    /// not encrypted.
    ///
    /// # Permissions of a SQLite file
    ///
    /// The process's umask determines the permissions of the file, its `-wal` and its `-shm`; often everybody can read them. Start the
    /// process with umask 077, or keep the file in a directory of its own with mode 0700.
    pub fn database(mut self, url: impl Into<String>) -> Self {
        self.database = Some(url.into());
        self
    }

    /// Adds a value for verbs that take `Data<T>`. A second value of the same type replaces the first.
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

    /// Adds this machine, so that it is linked even if nothing else references its crate.
    pub fn machine<M: Machine>(mut self) -> Self {
        self.machines.push(M::ENTRY);
        self
    }

    /// Restricts the runtime to this machine and others that are named the same way. By default a runtime serves all machines that are
    /// registered in the program.
    pub fn only<M: Machine>(mut self) -> Self {
        self.only_named = true;
        self.machine::<M>()
    }

    /// The maximum number of attempts that execute at the same time; 256 by default, at least 1. Partitions share it equally, and each has at
    /// least one.
    pub fn concurrency(mut self, attempts: u32) -> Self {
        self.concurrency = attempts.max(1);
        self
    }

    /// The maximum number of verbs with `#[verb(blocking)]` that block a thread at the same time; 64 by default, at least 1. Further attempts
    /// wait for a thread, and this wait counts to their timeout. A thread cannot be stopped: if its attempt times out or is released, it
    /// keeps its place until the verb returns. The threads are those of tokio's blocking pool.
    pub fn blocking_threads(mut self, threads: u32) -> Self {
        self.blocking_threads = threads.max(1);
        self
    }

    /// Declares a limit for the verbs with `#[verb(limit = "…")]` of this name. Over all processes of the database, it bounds the number of
    /// their calls that run at once and the rate at which they start. A call that waits for a limit is a row: it uses no attempt, no retry and no slot.
    ///
    /// The setting is stored at the start. An operator can change it (`fsm limits set`). The operator's setting then applies, also after a
    /// restart, until a process starts whose code declares another setting than the code before.
    ///
    /// [`start`](Builder::start) fails if the limit of a verb is neither declared here nor stored, and if a name is empty or has more than 100
    /// bytes.
    pub fn limit(mut self, name: impl Into<String>, setting: LimitSetting) -> Self {
        self.declared_limits.insert(name.into(), setting);
        self
    }

    /// The lease duration; 30 s by default, at least 100 ms, at most a century. If this process sends no heartbeat for this long, other
    /// processes treat its running attempts as lost.
    ///
    /// On Linux, other workers on the same machine do not wait for the lease of a process that does not exist any more. Workers in
    /// containers wait for it, unless they share the process ids of one container.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(SHORTEST_LEASE, LONGEST);
        self
    }

    /// Behaves as in a container of its own: other processes cannot see whether this one still exists, and its lease alone decides.
    #[cfg(feature = "testing")]
    pub fn in_a_container(mut self) -> Self {
        self.is_in_a_container = true;
        self
    }

    /// The poll interval: the longest time between two scans for due work of other processes; 1 s by default, at least 1 ms.
    pub fn poll_interval(mut self, poll: Duration) -> Self {
        self.poll = poll.clamp(SHORTEST_POLL, LONGEST);
        self
    }

    /// The time for which [`Runtime::shutdown`] waits for running attempts before it releases them; 20 s by default. `shutdown` returns at
    /// most two seconds after that.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout.min(LONGEST);
        self
    }

    /// The longest time for which [`start`](Builder::start), a send or an operator's act retries without progress while the database is
    /// unavailable. The caller then gets the error. 10 s by default, at least 100 ms. The completion of an attempt is retried as long as
    /// the process lives.
    pub fn patience(mut self, limit: Duration) -> Self {
        self.limits.patience = limit.max(SHORTEST_PATIENCE);
        self
    }

    /// The maximum size of one payload in bytes; 256 KiB by default.
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.limits.payload = bytes;
        self
    }

    /// The maximum number of events in the inbox of one instance; 1,000 by default. A send from outside to a full inbox is an error that
    /// `is_busy()`. An event that a verb sends waits in the outbox, which has no limit, and a worker delivers it when there is room.
    pub fn inbox_limit(mut self, events: u64) -> Self {
        self.limits.inbox = events;
        self
    }

    /// Sets the redaction. `redact` is called with each error text before it is stored and logged, and with payloads and records before an
    /// operator's tool shows them. If it returns `None`, the text is unchanged. If it panics, the whole text is withheld.
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

    /// Sets the codec that encrypts payloads, records, error texts and results of `ctx.once` before they are stored. Every process on a
    /// database needs the same codec. Values that were stored without a codec are read as they are.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.data_protection.codec = Some(Arc::new(codec));
        self
    }

    /// Refuses payloads, records and memoised effects that the [`codec`](Builder::codec) did not encrypt. By default, values that were
    /// stored without a codec are read too. An attempt that needs a refused value fails without running its verb, its error gives the
    /// reason, and the retry policy applies. An attacker who can write to the database but has no key then cannot run a verb with forged
    /// content. The content of a `Timeout` is written by the engine and is never encrypted.
    ///
    /// [`start`](Builder::start) fails if there is no codec.
    pub fn require_encryption(mut self) -> Self {
        self.data_protection.requires_encryption = true;
        self
    }

    /// The maximum number of connections to PostgreSQL; 8 by default, at least 3. Two more are used: one for the lease and one that listens
    /// for notifications. Partitions share the connections equally; each has at least 3, and two more.
    ///
    /// At most half of them, rounded down, are lent to verbs by `ctx.postgres()` at a time. A quarter, at least one, is reserved for
    /// commits, claims and the sweeper. The rest serves reads, `ctx.once` and the engine. Of 8 connections that is 4, 2 and 2; of 3 it is
    /// one each. Verbs that hold a connection for long therefore delay only other verbs that want one.
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = Some(connections.max(FEWEST_CONNECTIONS));
        self
    }

    /// The point at which SQLite acknowledges a commit; [`Synchronous::Full`] by default.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = Some(synchronous);
        self
    }

    /// The time limit of one database operation: a statement, a commit, or the wait for a connection; 30 s by default, at least 1 ms. After
    /// the limit, the connection is closed and the operation is retried on another one.
    pub fn operation_timeout(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit.clamp(SHORTEST_OPERATION, LONGEST));
        self
    }

    /// Disables prepared statements on PostgreSQL, for poolers in transaction mode. The URL's parameter `statement-cache-capacity=0` has
    /// the same effect, and also works for a [`Client`](crate::client::Client).
    pub fn without_statement_cache(mut self) -> Self {
        self.statement_cache = false;
        self
    }

    /// The retention time: how long an ended instance is kept with its calls, its history and its dedup ids; 30 days by default, without
    /// limit for `Duration::MAX`. Afterwards its key is free. An instance with a delayed event is kept until the event was delivered.
    ///
    /// Ended attempts, history notes and dedup ids of a live instance are deleted after the same time, and so are the results of `ctx.once`
    /// of closed calls. The newest call is kept (of a long one the first attempt and the last ones), and so is the call that it caught.
    pub fn retention(mut self, span: Duration) -> Self {
        self.retention = Some(span);
        self
    }

    /// Adds a schedule, and the machine that gets its events. Every process of a database should declare the same schedules: each moment is sent
    /// once, by one of them. A schedule that no process declares any more stops, and `fsm doctor` reports it.
    ///
    /// [`start`](Builder::start) fails if the cron expression, the interval or the time zone is invalid, or if two schedules have one name.
    pub fn schedule(mut self, schedule: DeclaredSchedule) -> Self {
        self.machines.push(schedule.machine());
        self.schedules.push(schedule);
        self
    }

    /// With `true`, the span of an attempt is a child of the span that sent its event, so that both are in one trace. By default the span of an
    /// attempt begins a trace of its own and links to the sender's, because hours may lie between. Has an effect with the feature `otel` only.
    pub fn parent_from_send(mut self, is_child: bool) -> Self {
        self.has_parent_from_send = is_child;
        self
    }

    /// Renames old names in the database by `mapping` at the start, a few instances at a time. The history of each instance records it.
    /// Processes with older code may continue meanwhile. Rows that they write later are renamed too: one minute after the start, after two
    /// more minutes, four, and so on, and finally once a day.
    pub fn migrate(mut self, mapping: Migrate) -> Self {
        self.migrate.push(mapping);
        self
    }
}

impl Runtime {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A typed handle to the instances of `M`.
    pub fn machine<M: Machine>(&self) -> Handle<M> {
        Handle::new(self.engines.clone(), None)
    }

    /// The text after the redaction that the builder's [`redact`](Builder::redact) set.
    pub fn redacted(&self, shown: Redactable<'_>) -> String {
        self.engines.first().data_protection.redaction.of(shown).into_owned()
    }

    /// Returns the invariants of [`doctor`](crate::doctor::doctor)'s report that do not hold. A healthy database has none.
    pub async fn check_invariants(&self) -> Result<Vec<Invariant>, Error> {
        self.engines.check_invariants().await
    }

    /// The attempts whose verb has ended and whose outcome could not be stored yet. Normally there are none.
    pub fn unreported(&self) -> Vec<UnreportedAttempt> {
        self.engines.work().flat_map(Work::unreported).collect()
    }

    /// Stops the heartbeats while the verbs continue, like a process that has lost its connection to the database.
    #[cfg(feature = "testing")]
    pub fn stop_renewing(&self) {
        self.engines.work().for_each(|work| work.session.stop());
    }
}

impl From<&Runtime> for EngineAccess {
    fn from(runtime: &Runtime) -> EngineAccess {
        EngineAccess::new(&runtime.engines, None)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.engines.kill();
    }
}

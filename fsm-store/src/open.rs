//! An open database, and getting a connection from it: for writing, for reading, or outside all pools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;

use super::address::{self, Scheme};
use super::conn::Conn;
use super::drivers::Driver;
use super::error::{Result, StoreError};
#[cfg(feature = "testing")]
use super::failpoint::Failpoint;
use super::guarded::StatementSettings;
use super::held;
#[cfg(feature = "postgres")]
use super::postgres::pool::PostgresPool;
use super::rights::Rights;
use super::settings::Settings;
use super::shares::Purpose;
use super::sql;
#[cfg(feature = "sqlite")]
use super::sqlite::pools::SqlitePools;
use super::tx::{DedicatedConnection, Reader, Tx};
use super::values::values;

/// The time limit of a statement that reads whole tables.
const EXAMINED_WITHIN: Duration = Duration::from_secs(600);

/// An open database. Clones share its connections.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    schema: Option<String>,
    statement_settings: StatementSettings,
    rights: Rights,
    pools: Pools,
}

/// The connections to the database. Both variants have the same functions.
pub(super) enum Pools {
    #[cfg(feature = "sqlite")]
    Sqlite(SqlitePools),
    #[cfg(feature = "postgres")]
    Postgres(PostgresPool),
}

/// Evaluates `$body` on the pools of the store's database.
macro_rules! for_pools {
    ($store:expr, $pools:ident => $body:expr) => {
        match &$store.inner.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite($pools) => $body,
            #[cfg(feature = "postgres")]
            Pools::Postgres($pools) => $body,
        }
    };
}

/// The times that a PostgreSQL server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerClock {
    /// The current time of the server.
    pub now: Timestamp,
    /// The time at which the server started.
    pub up_since: Timestamp,
}

impl Pools {
    /// Opens the database and makes a first connection. Also returns the settings for statements.
    async fn open(settings: &Settings) -> Result<(StatementSettings, Pools)> {
        match address::scheme(&settings.url)? {
            #[cfg(feature = "sqlite")]
            Scheme::Sqlite => {
                let pools = SqlitePools::open(settings).await?;
                Ok((pools.statement_settings(settings), Pools::Sqlite(pools)))
            }
            #[cfg(not(feature = "sqlite"))]
            Scheme::Sqlite => Err(address::no_driver(&settings.url, "sqlite")),
            #[cfg(feature = "postgres")]
            Scheme::Postgres => {
                let pool = PostgresPool::open(settings).await?;
                Ok((pool.statement_settings(settings), Pools::Postgres(pool)))
            }
            #[cfg(not(feature = "postgres"))]
            Scheme::Postgres => Err(address::no_driver(&settings.url, "postgres")),
        }
    }
}

impl Store {
    /// Opens the database and makes a first connection. Creates a SQLite file that does not exist. Does not create the tables: see
    /// [`migrate`](super::migrate).
    pub async fn open(settings: Settings) -> Result<Store> {
        let (statement_settings, pools) = Pools::open(&settings).await?;
        Ok(Store { inner: Arc::new(Inner { schema: settings.schema, statement_settings, rights: Rights::default(), pools }) })
    }

    /// A store of a PostgreSQL database that cannot be reached yet. It is reached in the same way as the database of `like`: with a pooler or
    /// without.
    #[cfg(feature = "postgres")]
    pub fn unopened(settings: Settings, like: &Store) -> Result<Store> {
        let is_direct = matches!(like.pools(), Pools::Postgres(pool) if pool.is_direct);
        let pool = PostgresPool::unopened(&settings, is_direct)?;
        let statement_settings = pool.statement_settings(&settings);
        let pools = Pools::Postgres(pool);
        Ok(Store { inner: Arc::new(Inner { schema: settings.schema, statement_settings, rights: Rights::default(), pools }) })
    }

    /// The name of the database in messages, with the schema of a partition.
    pub fn place(&self) -> String {
        let database = self.database();
        self.schema().map_or_else(|| database.to_string(), |schema| address::schema_of(schema, &database))
    }

    /// The name of the database in messages, without the schema.
    pub fn database(&self) -> Arc<str> {
        for_pools!(self, pools => pools.name())
    }

    /// The schema of the tables, if the settings name one.
    pub fn schema(&self) -> Option<&str> {
        self.inner.schema.as_deref()
    }

    /// The driver of the database.
    pub fn driver(&self) -> Driver {
        match &self.inner.pools {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(_) => Driver::Sqlite,
            #[cfg(feature = "postgres")]
            Pools::Postgres(_) => Driver::Postgres,
        }
    }

    /// True if the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.driver().is_postgres()
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    /// True if a send of this process may begin a call. PostgreSQL's role `fsm_sender` may not: its events wait in the inbox until a
    /// worker takes them. The database is asked once.
    pub async fn may_begin_calls(&self) -> Result<bool> {
        match self.inner.rights.begins_calls() {
            Some(known) => Ok(known),
            None if self.is_postgres() => self.inner.rights.ask(&mut self.reader().await?.conn()).await,
            None => Ok(true),
        }
    }

    /// The cached answer of [`may_begin_calls`](Store::may_begin_calls), or true if the database was not asked yet.
    pub fn begins_calls(&self) -> bool {
        self.inner.rights.begins_calls().unwrap_or(true)
    }

    pub(super) fn statement_settings(&self) -> &StatementSettings {
        &self.inner.statement_settings
    }

    /// Applies this store's deadline, statement cache and failpoint to a connection from elsewhere.
    pub fn adopt(&self, conn: &mut Conn<'_>) {
        conn.set_statement_settings(self.inner.statement_settings.clone());
    }

    /// Uses the failpoint of another store from now on, so that a failure counts the statements of both. For a store that has no clones.
    ///
    /// # Panics
    ///
    /// If the store has clones.
    #[cfg(feature = "testing")]
    pub fn share_failpoint(&mut self, other: &Store) {
        let inner = Arc::get_mut(&mut self.inner).expect("a store that was just opened has no clones");
        inner.statement_settings.failpoint = other.failpoint().clone();
    }

    /// The failpoint of this store.
    #[cfg(feature = "testing")]
    pub fn failpoint(&self) -> &Failpoint {
        &self.inner.statement_settings.failpoint
    }

    /// An id that distinguishes the stores of this process.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// The limit on one operation.
    pub fn deadline(&self) -> Duration {
        self.inner.statement_settings.deadline
    }

    /// Begins a transaction that writes. SQLite permits one at a time in this process, first come first served, and no other process writes
    /// during it.
    ///
    /// Returns `Err(SelfDeadlock)` if the verb of the current task already holds the SQLite writer.
    pub async fn begin(&self) -> Result<Tx> {
        self.begin_for(Purpose::Short).await
    }

    pub(super) async fn begin_for(&self, purpose: Purpose) -> Result<Tx> {
        self.check_writer()?;
        self.check_writable()?;
        self.naming(for_pools!(self, pools => pools.begin(self.statement_settings(), purpose).await))
    }

    /// Begins a transaction that also runs a user's own statements, on a connection of the driver that the statements are written for.
    pub async fn begin_for_user(&self) -> Result<Tx> {
        self.check_writer()?;
        self.check_writable()?;
        self.naming(for_pools!(self, pools => pools.begin_for_user(self.statement_settings()).await))
    }

    /// Returns `Err(SelfDeadlock)` if the verb of the current task holds the only connection that writes.
    fn check_writer(&self) -> Result<()> {
        if !self.is_postgres() && held::has_writer(self.id()) { Err(StoreError::SelfDeadlock) } else { Ok(()) }
    }

    /// Returns `Err(SelfDeadlock)` if reads wait for the transaction of the current task's verb.
    fn check_reads(&self) -> Result<()> {
        let waits = for_pools!(self, pools => pools.reads_wait_for_writer());
        if waits && held::has_writer(self.id()) { Err(StoreError::SelfDeadlock) } else { Ok(()) }
    }

    /// Returns `Err(ReadOnly)` if nothing can be written.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(StoreError::ReadOnly { place: self.place() }) } else { Ok(()) }
    }

    fn is_read_only(&self) -> bool {
        for_pools!(self, pools => pools.is_read_only())
    }

    /// Adds the name of the database to `NotWritable`: a statement that gets this error does not know the name.
    pub fn naming<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match error {
            StoreError::NotWritable { .. } if self.is_read_only() => StoreError::ReadOnly { place: self.place() },
            StoreError::NotWritable { .. } => StoreError::NotWritable { place: self.place() },
            error => error,
        })
    }

    /// A connection on which each statement is a transaction of its own. With SQLite it can only read.
    ///
    /// Returns `Err(SelfDeadlock)` if the verb of the current task holds the writer of a database in memory, because readers wait for that
    /// writer.
    pub async fn reader(&self) -> Result<Reader> {
        self.reader_for(Purpose::Short).await
    }

    async fn reader_for(&self, purpose: Purpose) -> Result<Reader> {
        self.check_reads()?;
        let side = for_pools!(self, pools => pools.reader(self.statement_settings(), purpose).await)?;
        Ok(Reader { side, statement_settings: self.inner.statement_settings.clone() })
    }

    /// Like [`reader`](Store::reader), but for the engine's reads by key. Uses the planner settings of a commit if it can.
    pub async fn engine_reader(&self) -> Result<Reader> {
        match self.for_commits().await? {
            Some(reader) => Ok(reader),
            None => self.reader_for(Purpose::Engine).await,
        }
    }

    /// A connection for single statements that commit by themselves, with the planner settings of a commit. `None` where the session cannot
    /// be configured: in SQLite, and behind a pooler, where the setting would affect other clients.
    pub async fn for_commits(&self) -> Result<Option<Reader>> {
        let side = for_pools!(self, pools => pools.for_commits(self.statement_settings()).await)?;
        Ok(side.map(|side| Reader { side, statement_settings: self.inner.statement_settings.clone() }))
    }

    /// Begins a transaction that reads one snapshot of the database, however long it takes. SQLite permits no writes in it.
    pub async fn snapshot(&self) -> Result<Tx> {
        for_pools!(self, pools => pools.snapshot(self.statement_settings()).await)
    }

    /// Begins a read-only transaction for statements that read whole tables. The limit of each is ten minutes, or the deadline if that is
    /// longer. PostgreSQL plans each statement for the present size of the tables, and ends it at the limit even if the client has gone.
    pub async fn examination(&self) -> Result<Tx> {
        self.check_reads()?;
        let deadline = self.deadline().max(EXAMINED_WITHIN);
        let mut tx = for_pools!(self, pools => pools.examination(self.statement_settings()).await)?.limited(deadline);
        let limit_ms = deadline.as_millis().clamp(1, i32::MAX as u128).to_string();
        tx.conn().rows(&sql::LIMIT_STATEMENTS, &values![limit_ms.as_str()]).await?;
        Ok(tx)
    }

    /// A writable connection outside every pool, on which each statement is a transaction of its own. It belongs to the tokio runtime that
    /// made it.
    pub async fn dedicated(&self) -> Result<DedicatedConnection> {
        let side = for_pools!(self, pools => pools.dedicated().await)?;
        Ok(DedicatedConnection { side, statement_settings: self.inner.statement_settings.clone() })
    }

    /// Closes the connections of the pool that were idle for this long. The next operation makes a new one. Those to SQLite stay open.
    pub fn rest(&self, limit: Duration) {
        for_pools!(self, pools => pools.rest(limit));
    }

    /// Closes the idle connections and hands out no more. A connection in use is closed when its user returns it.
    pub async fn close(&self) {
        for_pools!(self, pools => pools.close().await);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.place()).finish()
    }
}

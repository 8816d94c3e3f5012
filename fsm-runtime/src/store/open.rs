//! Opening a database, and getting a connection from it: for writing, for reading, or outside all pools.

mod make;
mod snapshot;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use super::address::{self, Address};
use super::conn::Conn;
use super::guarded::StatementSettings;

use super::error::{Result, StoreError};
use super::failpoint::Failpoint;
use super::file_version::{FileVersion, FileVersions, Turns};
use super::held;
use super::pool::{Connects, Pool, Taken};
use super::rights::Rights;
use super::servers::Servers;
use super::shares::Purpose;
use super::thread::SqliteThread;
use super::tx::{DedicatedConnection, Reader, Side, Tx};
use super::{postgres, sql, sqlite, user_sqlite};

/// The database, and the settings for its use.
#[derive(Clone)]
pub struct Settings {
    /// `sqlite://payments.db`, `sqlite:payments.db`, `payments.db`, `sqlite::memory:` or `postgres://…`.
    pub url: String,
    /// The maximum number of PostgreSQL connections, without those outside the pool. With three or more, a quarter is reserved for commits
    /// and claims, and at most half are in transactions that user code ends.
    pub connections: u32,
    /// The durability of a SQLite commit.
    pub synchronous: Synchronous,
    /// The limit on one operation: a statement, a commit, the wait for a connection.
    pub deadline: Duration,
    /// True if prepared statements are cached. Must be `false` for PgBouncer in transaction mode.
    pub statement_cache: bool,
    /// True if nothing is written on these connections, by this crate or by the database itself. A missing file is not created.
    pub read_only: bool,
}

/// The durability of a SQLite commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// A commit waits until the data is on disk. It survives a power failure.
    #[default]
    Full,
    /// A commit waits for the operating system. It survives the death of the process, but a power failure may lose the last commits.
    Normal,
}

impl Settings {
    /// The defaults: 8 connections, full durability, a deadline of 30 s, read and write. Prepared statements are cached unless the URL has
    /// `statement-cache-capacity=0`.
    pub fn new(url: impl Into<String>) -> Settings {
        let url = url.into();
        let statement_cache = address::keeps_statements(&url);
        Settings {
            url,
            connections: 8,
            synchronous: Synchronous::Full,
            deadline: Duration::from_secs(30),
            statement_cache,
            read_only: false,
        }
    }
}

/// An open database. Clones share its connections.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    place: String,
    statement_settings: StatementSettings,
    read_only: bool,
    rights: Rights,
    kind: Kind,
}

enum Kind {
    Sqlite {
        writer: Pool<SqliteThread>,
        readers: Pool<SqliteThread>,
        /// Each connection runs a user's statements in place of the writer, and is closed afterwards.
        user_sqlite: Pool<SqliteConnection>,
        /// `None` for a database in memory, where a reader has to wait for the writer.
        turns: Option<Turns>,
        /// Keeps a database in memory alive while no other connection is open.
        _anchor: Option<Box<tokio::sync::Mutex<Taken<SqliteThread>>>>,
    },
    Postgres {
        pool: Pool<PgConnection>,
        /// True if it is known that each connection has a server session of its own, which no pooler gives to other clients.
        is_direct: bool,
    },
}

/// The way in which a store learns of other processes' commits.
pub(super) enum Listening {
    Never,
    /// Frequent, cheap polling of the file's change counter.
    Glances,
    Channel(Box<Servers>),
}

/// The times that a PostgreSQL server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerClock {
    /// The current time of the server.
    pub now: Timestamp,
    /// The time at which the server started.
    pub up_since: Timestamp,
}

impl Store {
    /// Opens the database and makes a first connection. Creates a SQLite file that does not exist. Does not create the tables: see
    /// [`migrate`](super::migrate).
    pub async fn open(settings: Settings) -> Result<Store> {
        let address = Address::parse(&settings.url)?;
        let read_only = settings.read_only || matches!(&address, Address::File(file) if file.is_read_only);
        let made = match address {
            Address::Memory => make::memory(&settings).await,
            Address::File(file) => make::file(&settings, file).await,
            Address::Servers(servers) => make::servers(&settings, *servers).await,
        };
        let (place, kind) = made.map_err(|error| match error {
            StoreError::NotWritable { place } if read_only => StoreError::ReadOnly { place },
            error => error,
        })?;
        let servers = match &kind {
            Kind::Postgres { pool, .. } => Some(Arc::new(pool.options().clone())),
            Kind::Sqlite { .. } => None,
        };
        let statement_settings = StatementSettings {
            deadline: settings.deadline,
            is_cached: settings.statement_cache,
            failpoint: Failpoint::somewhere(),
            servers,
        };
        Ok(Store { inner: Arc::new(Inner { place, statement_settings, read_only, rights: Rights::default(), kind }) })
    }

    /// The name of the database in messages.
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// True if the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.inner.kind, Kind::Postgres { .. })
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.inner.rights
    }

    /// Applies this store's deadline, statement cache and failpoint to a connection from elsewhere.
    pub fn adopt(&self, conn: &mut Conn<'_>) {
        conn.set_rules(self.inner.statement_settings.clone());
    }

    /// The failpoint of this store.
    pub(crate) fn failpoint(&self) -> &Failpoint {
        &self.inner.statement_settings.failpoint
    }

    /// An id that distinguishes the stores of this process.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// The limit on one operation.
    pub fn deadline(&self) -> Duration {
        self.inner.statement_settings.deadline
    }

    /// Begins a transaction that writes. SQLite permits one at a time in this process, first come first served, and no other process writes
    /// during it.
    ///
    /// Returns `Err(Crosswise)` if the verb of the current task already holds the SQLite writer.
    pub async fn begin(&self) -> Result<Tx> {
        self.begin_for(Purpose::Short).await
    }

    pub(super) async fn begin_for(&self, purpose: Purpose) -> Result<Tx> {
        if !self.is_postgres() && held::has_writer(self.id()) {
            return Err(StoreError::Crosswise);
        }
        let tx = self.begin_unseen(purpose, sql::BEGIN_POSTGRES).await?;
        Ok(Tx { _turn: self.turns().map(|turns| turns.begin(None)), ..tx })
    }

    /// Like [`begin`](Store::begin), but for a committer. Also returns the file version of a SQLite file: while it is unchanged, what the
    /// committer read earlier is still current.
    pub async fn begin_at_file_version(&self, file_versions: &FileVersions) -> Result<(Tx, Option<FileVersion>)> {
        let mut tx = self.begin_unseen(Purpose::Engine, sql::BEGIN_COMMIT_POSTGRES).await?;
        let Some(turns) = self.turns() else { return Ok((tx, None)) };
        tx._turn = Some(turns.begin(Some(file_versions)));
        let connection = match &tx.side {
            Side::Sqlite(taken) => taken.session.id,
            Side::UserSqlite { .. } | Side::Postgres(_) => return Ok((tx, None)),
        };
        let file_version = file_versions.now(turns, connection, &mut tx.conn()).await?;
        Ok((tx, file_version))
    }

    /// Begins a transaction that also runs a user's own statements, on a connection of the driver that the statements are written for.
    pub async fn begin_for_user(&self) -> Result<Tx> {
        let mut tx = match &self.inner.kind {
            Kind::Sqlite { .. } if self.inner.read_only => return Err(StoreError::ReadOnly { place: self.inner.place.clone() }),
            Kind::Sqlite { writer, user_sqlite, .. } => {
                if held::has_writer(self.id()) {
                    return Err(StoreError::Crosswise);
                }
                let place = writer.place(Purpose::Long).await?;
                let taken = self.begun(user_sqlite.dedicated().await?, async |conn| user_sqlite::begin(conn).await).await;
                Tx {
                    _turn: None,
                    side: Side::UserSqlite { taken: self.naming(taken)?, _place: place },
                    statement_settings: self.inner.statement_settings.clone(),
                }
            }
            Kind::Postgres { .. } => self.begin_for(Purpose::Long).await?,
        };
        match &mut tx.conn() {
            Conn::Sqlite(_) => {}
            Conn::UserSqlite(guarded) => guarded.hand_to_user().await?,
            Conn::Postgres(guarded) => guarded.hand_to_user().await?,
        }
        Ok(tx)
    }

    fn turns(&self) -> Option<&Turns> {
        self.writer().and_then(|(_, turns)| turns)
    }

    /// The pool of the only SQLite connection that writes and, for a file, the count of its transactions. `None` for PostgreSQL.
    pub(super) fn writer(&self) -> Option<(&Pool<SqliteThread>, Option<&Turns>)> {
        match &self.inner.kind {
            Kind::Sqlite { writer, turns, .. } => Some((writer, turns.as_ref())),
            Kind::Postgres { .. } => None,
        }
    }

    /// Begins a transaction that [`Turns`] does not count yet.
    async fn begin_unseen(&self, purpose: Purpose, in_postgres: &'static str) -> Result<Tx> {
        if self.inner.read_only {
            return Err(StoreError::ReadOnly { place: self.inner.place.clone() });
        }
        let begun = match &self.inner.kind {
            Kind::Sqlite { writer, .. } => {
                self.begun(writer.take(purpose).await?, async |conn| sqlite::begin(conn, sql::BEGIN_SQLITE).await).await.map(Side::Sqlite)
            }
            Kind::Postgres { pool, .. } => {
                let taken = self.replanned(pool.take(purpose).await?).await?;
                self.begun(taken, async |conn| postgres::words(conn, in_postgres).await).await.map(Side::Postgres)
            }
        };
        self.naming(begun.map(|side| Tx { _turn: None, side, statement_settings: self.inner.statement_settings.clone() }))
    }

    /// Adds the name of the database to `NotWritable`: a statement that gets this error does not know the name.
    pub(crate) fn naming<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match error {
            StoreError::NotWritable { .. } if self.inner.read_only => StoreError::ReadOnly { place: self.inner.place.clone() },
            StoreError::NotWritable { .. } => StoreError::NotWritable { place: self.inner.place.clone() },
            error => error,
        })
    }

    /// Runs `how` to begin a transaction. If the future is dropped before it ends, the connection counts as one with an open transaction.
    async fn begun<C: Connects>(&self, mut taken: Taken<C>, how: impl AsyncFnOnce(&mut C) -> sqlx::Result<()>) -> Result<Taken<C>> {
        let (conn, health) = taken.parts();
        health.is_open = true;
        self.inner.statement_settings.failpoint.pass(|| "before a transaction began".to_owned()).await?;
        self.inner.statement_settings.within(health, how(conn)).await?;
        Ok(taken)
    }

    /// A connection on which each statement is a transaction of its own. With SQLite it can only read.
    ///
    /// Returns `Err(Crosswise)` if the verb of the current task holds the writer of a database in memory, because readers wait for that
    /// writer.
    pub async fn reader(&self) -> Result<Reader> {
        self.reader_for(Purpose::Short).await
    }

    async fn reader_for(&self, purpose: Purpose) -> Result<Reader> {
        let side = match &self.inner.kind {
            Kind::Sqlite { turns: None, .. } if held::has_writer(self.id()) => return Err(StoreError::Crosswise),
            Kind::Sqlite { readers, .. } => Side::Sqlite(readers.take(purpose).await?),
            Kind::Postgres { pool, .. } => Side::Postgres(self.set(pool.take_rather(purpose, false).await?, false).await?),
        };
        Ok(Reader { side, statement_settings: self.inner.statement_settings.clone() })
    }

    /// Like [`reader`](Store::reader), but for the engine's reads by key. Uses the planner settings of a commit if it can.
    pub async fn looker(&self) -> Result<Reader> {
        match self.for_commits().await? {
            Some(reader) => Ok(reader),
            None => self.reader_for(Purpose::Engine).await,
        }
    }

    /// A connection for single statements that commit by themselves, with the planner settings of a commit. `None` where the session cannot
    /// be configured: in SQLite, and behind a pooler, where the setting would affect other clients.
    pub async fn for_commits(&self) -> Result<Option<Reader>> {
        match &self.inner.kind {
            Kind::Postgres { pool, is_direct: true } if !self.inner.read_only => {
                let side = Side::Postgres(self.set(pool.take_rather(Purpose::Engine, true).await?, true).await?);
                Ok(Some(Reader { side, statement_settings: self.inner.statement_settings.clone() }))
            }
            _ => Ok(None),
        }
    }

    /// Sets the planner settings of the session for commits, or resets them.
    async fn set(&self, mut taken: Taken<PgConnection>, is_pinned: bool) -> Result<Taken<PgConnection>> {
        if taken.session.is_pinned != is_pinned {
            self.say(&mut taken, if is_pinned { sql::PIN } else { sql::UNPIN }).await?;
            taken.session.is_pinned = is_pinned;
        }
        self.replanned(taken).await
    }

    /// Discards cached plans that are old: the tables may have grown since.
    async fn replanned(&self, mut taken: Taken<PgConnection>) -> Result<Taken<PgConnection>> {
        if self.inner.statement_settings.is_cached && taken.session.plans.are_old() {
            self.say(&mut taken, sql::FORGET_PLANS).await?;
        }
        Ok(taken)
    }

    /// Runs a statement that changes the session. If the future is dropped before it ends, the connection is not used again.
    async fn say(&self, taken: &mut Taken<PgConnection>, text: &'static str) -> Result<()> {
        let (conn, health) = taken.parts();
        health.is_broken = true;
        self.inner.statement_settings.within(health, postgres::words(conn, text)).await?;
        health.is_broken = false;
        Ok(())
    }

    /// The way in which this store learns of other processes' commits.
    pub(super) fn listening(&self) -> Listening {
        match &self.inner.kind {
            Kind::Sqlite { _anchor: Some(_), .. } => Listening::Never,
            Kind::Sqlite { .. } => Listening::Glances,
            // Behind a pooler a `listen` may be lost, or may occupy a server connection permanently.
            Kind::Postgres { pool, is_direct: true } => Listening::Channel(Box::new(pool.options().clone())),
            Kind::Postgres { .. } => Listening::Never,
        }
    }

    /// A writable connection outside every pool, on which each statement is a transaction of its own. It belongs to the tokio runtime that
    /// made it.
    pub async fn dedicated(&self) -> Result<DedicatedConnection> {
        let side = match &self.inner.kind {
            Kind::Sqlite { writer, .. } => Side::Sqlite(writer.dedicated().await?),
            Kind::Postgres { pool, .. } => Side::Postgres(pool.dedicated().await?),
        };
        Ok(DedicatedConnection { side, statement_settings: self.inner.statement_settings.clone() })
    }

    /// Closes the idle connections and hands out no more. A connection in use is closed when its user returns it.
    pub async fn close(&self) {
        match &self.inner.kind {
            Kind::Sqlite { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Kind::Postgres { pool, .. } => pool.close().await,
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.inner.place).finish()
    }
}

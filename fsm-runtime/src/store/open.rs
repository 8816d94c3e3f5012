//! Opening a database, and the ways to a connection of it: to write, to read, and apart from all others.

mod make;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use super::address::{self, Address};
use super::conn::Conn;
use super::guarded::Rules;

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

/// Which database, and how it is used.
#[derive(Clone)]
pub struct Settings {
    /// `sqlite://payments.db`, `sqlite:payments.db`, `payments.db`, `sqlite::memory:` or `postgres://…`.
    pub url: String,
    /// How many connections to PostgreSQL at most, besides those held apart. Of three and more, a quarter is left to commits and claims, and at
    /// most half are in transactions that somebody else ends.
    pub connections: u32,
    /// What a commit of SQLite waits for.
    pub synchronous: Synchronous,
    /// The limit on one operation: a statement, a commit, the wait for a connection.
    pub deadline: Duration,
    /// Statements are kept prepared. `false` for PgBouncer in transaction mode.
    pub statement_cache: bool,
    /// Nothing will be written: neither by us nor by SQLite or PostgreSQL on these connections. A file that does not exist is not made.
    pub read_only: bool,
}

/// What a commit of SQLite waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// The disk has it: survives a power cut.
    #[default]
    Full,
    /// The operating system has it: survives the process, and a power cut may take the last commits.
    Normal,
}

impl Settings {
    /// The defaults: 8 connections, full durability, 30 s, prepared statements unless the URL says `statement-cache-capacity=0`, writing.
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
    rules: Rules,
    read_only: bool,
    rights: Rights,
    kind: Kind,
}

enum Kind {
    Sqlite {
        writer: Pool<SqliteThread>,
        readers: Pool<SqliteThread>,
        /// Each is lent to somebody else's statements, in the writer's place, and closed afterwards.
        user_sqlite: Pool<SqliteConnection>,
        /// `None` for a database in memory, where nobody can look while somebody writes.
        turns: Option<Turns>,
        /// Keeps a database in memory alive while no other connection is open.
        _anchor: Option<Box<tokio::sync::Mutex<Taken<SqliteThread>>>>,
    },
    Postgres {
        pool: Pool<PgConnection>,
        /// The server is known to give each connection a session of its own, which nobody else will have.
        is_direct: bool,
    },
}

/// How a store can be listened to.
pub(super) enum Listening {
    Never,
    /// By looking, cheaply and often.
    Glances,
    Channel(Box<Servers>),
}

/// What PostgreSQL says of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerClock {
    /// Its clock.
    pub now: Timestamp,
    /// When the server started.
    pub up_since: Timestamp,
}

impl Store {
    /// Opens the database and makes a first connection. A SQLite file is created when it does not exist; the tables are [`migrate`](super::migrate)'s.
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
        let rules = Rules { deadline: settings.deadline, is_cached: settings.statement_cache, failpoint: Failpoint::somewhere(), servers };
        Ok(Store { inner: Arc::new(Inner { place, rules, read_only, rights: Rights::default(), kind }) })
    }

    /// Which database, as messages name it.
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// Whether the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.inner.kind, Kind::Postgres { .. })
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.inner.rights
    }

    /// Another's connection, whose statements are run like those of this store.
    pub fn adopt(&self, conn: &mut Conn<'_>) {
        conn.set_rules(self.inner.rules.clone());
    }

    /// Where a test cuts the connections.
    pub(crate) fn failpoint(&self) -> &Failpoint {
        &self.inner.rules.failpoint
    }

    /// Which store it is, among those of this process.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    /// The limit on one operation.
    pub fn deadline(&self) -> Duration {
        self.inner.rules.deadline
    }

    /// Begins a transaction that writes. With SQLite there is one at a time in this process, first come first served, and no other
    /// process writes meanwhile.
    ///
    /// `Err(Crosswise)` where this task's own verb is the one who writes.
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

    /// The same for a committer, and the epoch of a SQLite file: while that lasts, what the committer saw before is still so.
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

    /// Begins a transaction in which a user's own statements run too, on a connection of the driver that they are written for.
    pub async fn begin_for_user(&self) -> Result<Tx> {
        let mut tx = match &self.inner.kind {
            Kind::Sqlite { .. } if self.inner.read_only => return Err(StoreError::ReadOnly { place: self.inner.place.clone() }),
            Kind::Sqlite { writer, user_sqlite, .. } => {
                if held::has_writer(self.id()) {
                    return Err(StoreError::Crosswise);
                }
                let place = writer.place(Purpose::Long).await?;
                let taken = self.begun(user_sqlite.dedicated().await?, async |conn| user_sqlite::begin(conn).await).await;
                Tx { _turn: None, side: Side::UserSqlite { taken: self.naming(taken)?, _place: place }, rules: self.inner.rules.clone() }
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

    /// The one connection that writes to SQLite, and in a file, whose turn it is.
    pub(super) fn writer(&self) -> Option<(&Pool<SqliteThread>, Option<&Turns>)> {
        match &self.inner.kind {
            Kind::Sqlite { writer, turns, .. } => Some((writer, turns.as_ref())),
            Kind::Postgres { .. } => None,
        }
    }

    /// Begins a transaction whose turn is still to be counted.
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
        self.naming(begun.map(|side| Tx { _turn: None, side, rules: self.inner.rules.clone() }))
    }

    /// Begins a transaction that reads what was there at one moment, however long it takes. With SQLite nothing can be written in it.
    pub async fn snapshot(&self) -> Result<Tx> {
        let side = match &self.inner.kind {
            Kind::Sqlite { readers, .. } => self
                .begun(readers.take(Purpose::Long).await?, async |conn| sqlite::begin(conn, sql::SNAPSHOT_SQLITE).await)
                .await
                .map(Side::Sqlite),
            Kind::Postgres { pool, .. } => {
                let taken = self.set(pool.take_rather(Purpose::Long, false).await?, false).await?;
                self.begun(taken, async |conn| postgres::words(conn, sql::SNAPSHOT_POSTGRES).await).await.map(Side::Postgres)
            }
        };
        Ok(Tx { _turn: None, side: side?, rules: self.inner.rules.clone() })
    }

    /// Says which database accepts no writes: a statement that finds out does not know.
    pub(crate) fn naming<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| match error {
            StoreError::NotWritable { .. } if self.inner.read_only => StoreError::ReadOnly { place: self.inner.place.clone() },
            StoreError::NotWritable { .. } => StoreError::NotWritable { place: self.inner.place.clone() },
            error => error,
        })
    }

    /// Begins by `how`. Abandoned half-way, the connection counts as one with an open transaction.
    async fn begun<C: Connects>(&self, mut taken: Taken<C>, how: impl AsyncFnOnce(&mut C) -> sqlx::Result<()>) -> Result<Taken<C>> {
        let (conn, health) = taken.parts();
        health.is_open = true;
        self.inner.rules.failpoint.pass(|| "before a transaction began".to_owned()).await?;
        self.inner.rules.within(health, how(conn)).await?;
        Ok(taken)
    }

    /// A connection whose every statement stands alone. With SQLite it can only read.
    ///
    /// `Err(Crosswise)` where this task's own verb writes, and keeps readers waiting, as it does in memory.
    pub async fn reader(&self) -> Result<Reader> {
        self.reader_for(Purpose::Short).await
    }

    async fn reader_for(&self, purpose: Purpose) -> Result<Reader> {
        let side = match &self.inner.kind {
            Kind::Sqlite { turns: None, .. } if held::has_writer(self.id()) => return Err(StoreError::Crosswise),
            Kind::Sqlite { readers, .. } => Side::Sqlite(readers.take(purpose).await?),
            Kind::Postgres { pool, .. } => Side::Postgres(self.set(pool.take_rather(purpose, false).await?, false).await?),
        };
        Ok(Reader { side, rules: self.inner.rules.clone() })
    }

    /// The same for the engine, to look at rows by their keys: where that can be set, they are planned as those of a transaction are.
    pub async fn looker(&self) -> Result<Reader> {
        match self.for_commits().await? {
            Some(reader) => Ok(reader),
            None => self.reader_for(Purpose::Engine).await,
        }
    }

    /// A connection on which statements that commit by themselves are planned as those of a transaction are. `None` where nothing can be
    /// set for a statement that stands alone: in SQLite, and behind a pooler, where a setting would meet others.
    pub async fn for_commits(&self) -> Result<Option<Reader>> {
        match &self.inner.kind {
            Kind::Postgres { pool, is_direct: true } if !self.inner.read_only => {
                let side = Side::Postgres(self.set(pool.take_rather(Purpose::Engine, true).await?, true).await?);
                Ok(Some(Reader { side, rules: self.inner.rules.clone() }))
            }
            _ => Ok(None),
        }
    }

    /// Sets the session for commits, or as it was.
    async fn set(&self, mut taken: Taken<PgConnection>, is_pinned: bool) -> Result<Taken<PgConnection>> {
        if taken.session.is_pinned != is_pinned {
            self.say(&mut taken, if is_pinned { sql::PIN } else { sql::UNPIN }).await?;
            taken.session.is_pinned = is_pinned;
        }
        self.replanned(taken).await
    }

    /// Without plans that the tables may have outgrown.
    async fn replanned(&self, mut taken: Taken<PgConnection>) -> Result<Taken<PgConnection>> {
        if self.inner.rules.is_cached && taken.session.plans.are_old() {
            self.say(&mut taken, sql::FORGET_PLANS).await?;
        }
        Ok(taken)
    }

    /// Says something to the session. Abandoned half-way, nobody uses it any more.
    async fn say(&self, taken: &mut Taken<PgConnection>, text: &'static str) -> Result<()> {
        let (conn, health) = taken.parts();
        health.is_broken = true;
        self.inner.rules.within(health, postgres::words(conn, text)).await?;
        health.is_broken = false;
        Ok(())
    }

    /// How other processes' commits can be heard of.
    pub(super) fn listening(&self) -> Listening {
        match &self.inner.kind {
            Kind::Sqlite { _anchor: Some(_), .. } => Listening::Never,
            Kind::Sqlite { .. } => Listening::Glances,
            // Behind a pooler a `listen` may be lost, or keep a connection of the server for ever.
            Kind::Postgres { pool, is_direct: true } => Listening::Channel(Box::new(pool.options().clone())),
            Kind::Postgres { .. } => Listening::Never,
        }
    }

    /// A connection outside every pool, that can write and whose every statement stands alone. It belongs to the tokio runtime that made it.
    pub async fn dedicated(&self) -> Result<DedicatedConnection> {
        let side = match &self.inner.kind {
            Kind::Sqlite { writer, .. } => Side::Sqlite(writer.dedicated().await?),
            Kind::Postgres { pool, .. } => Side::Postgres(pool.dedicated().await?),
        };
        Ok(DedicatedConnection { side, rules: self.inner.rules.clone() })
    }

    /// Closes the idle connections and hands out no more. Those in use are closed by their users.
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

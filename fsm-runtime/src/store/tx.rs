//! A connection in use: a transaction, a reader, or a connection outside all pools.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use super::conn::Conn;
use super::guarded::{GuardedConnection, StatementSettings};

use super::error::{Result, StoreError};
use super::file_version::Turn;
use super::pool::{Connects, Taken};
use super::shares::Place;
use super::thread::SqliteThread;
use super::{postgres, sql, sqlite, user_sqlite};

pub(super) enum Side {
    Sqlite(Taken<SqliteThread>),
    UserSqlite {
        taken: Taken<SqliteConnection>,
        /// The permit for the only SQLite connection that writes.
        _place: Place,
    },
    Postgres(Taken<PgConnection>),
}

impl Side {
    /// The number of the connection, from 1. A newer connection has a higher number.
    fn number(&self) -> u64 {
        let session = match self {
            Side::Sqlite(taken) => &taken.session,
            Side::UserSqlite { taken, .. } => &taken.session,
            Side::Postgres(taken) => &taken.session,
        };
        session.id + 1
    }

    fn conn(&mut self, statement_settings: StatementSettings) -> Conn<'_> {
        match self {
            Side::Sqlite(taken) => {
                let (conn, health) = taken.parts();
                Conn::Sqlite(GuardedConnection::new(conn, statement_settings, health))
            }
            Side::UserSqlite { taken, .. } => {
                let (conn, health) = taken.parts();
                Conn::UserSqlite(GuardedConnection::new(conn, statement_settings, health))
            }
            Side::Postgres(taken) => {
                let (conn, health) = taken.parts();
                Conn::Postgres(GuardedConnection::new(conn, statement_settings, health))
            }
        }
    }
}

/// A transaction that writes. If it is dropped without a commit, or after one of its statements failed, its connection is closed.
pub struct Tx {
    /// Dropped first, so that the transaction is counted before the connection is free.
    pub(super) _turn: Option<Turn>,
    pub(super) side: Side,
    pub(super) statement_settings: StatementSettings,
}

impl Tx {
    /// The connection of the transaction.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(self.statement_settings.clone())
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }

    /// Ends the use of the transaction by user code, before the engine writes in it. Returns `Err(Aborted)` if the user's statements left
    /// it failed or ended it: each later statement on the connection would then commit by itself.
    pub async fn take_back(&mut self) -> Result<()> {
        let done = match self.conn() {
            Conn::Sqlite(_) => Ok(()),
            Conn::UserSqlite(mut guarded) => {
                guarded.guarded(sql::RELEASE_LENT, async |conn| user_sqlite::words(conn, sql::RELEASE_LENT).await).await
            }
            Conn::Postgres(mut guarded) => {
                guarded.guarded(sql::RELEASE_LENT, async |conn| postgres::words(conn, sql::RELEASE_LENT).await).await
            }
        };
        match done {
            Err(StoreError::Database(error)) if error.as_database_error().is_some() => Err(StoreError::Aborted),
            done => done,
        }
    }

    /// Commits. Returns `Err(Aborted)` if an earlier statement of the transaction failed, the engine's or the user's: nothing is written
    /// then. After any other error the outcome is unknown.
    pub async fn commit(mut self) -> Result<()> {
        match &mut self.side {
            Side::Sqlite(taken) => {
                let pending = std::mem::take(&mut taken.health.pending);
                end(taken, &self.statement_settings, async |conn| sqlite::end(conn, pending, sql::COMMIT).await).await
            }
            Side::UserSqlite { taken, .. } => {
                end(taken, &self.statement_settings, async |conn| user_sqlite::words(conn, sql::COMMIT).await).await
            }
            Side::Postgres(taken) => {
                // PostgreSQL answers the commit of a failed transaction with success. A statement before the commit reveals a failure of
                // user code.
                let text = if taken.health.was_used_by_user { sql::COMMIT_AFTER_USER } else { sql::COMMIT };
                end(taken, &self.statement_settings, async |conn| postgres::words(conn, text).await).await
            }
        }
    }

    /// Rolls back without closing the connection.
    pub async fn rollback(mut self) -> Result<()> {
        match &mut self.side {
            Side::Sqlite(taken) => {
                taken.health.pending.clear();
                end(taken, &self.statement_settings, async |conn| sqlite::end(conn, Vec::new(), sql::ROLLBACK).await).await
            }
            Side::UserSqlite { taken, .. } => {
                end(taken, &self.statement_settings, async |conn| user_sqlite::words(conn, sql::ROLLBACK).await).await
            }
            Side::Postgres(taken) => end(taken, &self.statement_settings, async |conn| postgres::words(conn, sql::ROLLBACK).await).await,
        }
    }
}

/// Ends the transaction with `how`. The connection can be used again only if this succeeds.
async fn end<C: Connects>(
    taken: &mut Taken<C>,
    statement_settings: &StatementSettings,
    how: impl AsyncFnOnce(&mut C) -> sqlx::Result<()>,
) -> Result<()> {
    let (conn, health) = taken.parts();
    if health.is_broken {
        return Err(StoreError::Aborted);
    }
    health.is_broken = true;
    statement_settings.failpoint.pass(|| "before a transaction ended".to_owned()).await?;
    match statement_settings.within(health, how(conn)).await {
        Ok(()) => {
            // The failpoint where the transaction has ended and the process dies before it gets the answer.
            statement_settings.failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
            health.is_broken = false;
            health.is_open = false;
            Ok(())
        }
        Err(StoreError::Database(error)) if is_aborted(&error) => Err(StoreError::Aborted),
        Err(error) => Err(error),
    }
}

fn is_aborted(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "25P02")
}

/// A connection for reads.
pub struct Reader {
    pub(super) side: Side,
    pub(super) statement_settings: StatementSettings,
}

impl Reader {
    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(self.statement_settings.clone())
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }
}

/// A connection outside all pools.
pub struct DedicatedConnection {
    pub(super) side: Side,
    pub(super) statement_settings: StatementSettings,
}

impl DedicatedConnection {
    /// True if no statement on it failed or was abandoned.
    #[cfg(feature = "testing")]
    pub(crate) fn is_usable(&self) -> bool {
        let health = match &self.side {
            Side::Sqlite(taken) => &taken.health,
            Side::UserSqlite { taken, .. } => &taken.health,
            Side::Postgres(taken) => &taken.health,
        };
        !health.is_broken
    }

    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(self.statement_settings.clone())
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }
}

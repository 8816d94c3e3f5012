//! A connection that somebody holds: in a transaction, to read, or apart from all others.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

use super::conn::Conn;
use super::guarded::{GuardedConnection, Rules};

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
        /// Of the one connection that writes.
        _place: Place,
    },
    Postgres(Taken<PgConnection>),
}

impl Side {
    /// The number of the connection, from 1: a newer one has a higher number.
    fn number(&self) -> u64 {
        let session = match self {
            Side::Sqlite(taken) => &taken.session,
            Side::UserSqlite { taken, .. } => &taken.session,
            Side::Postgres(taken) => &taken.session,
        };
        session.id + 1
    }

    fn conn(&mut self, rules: Rules) -> Conn<'_> {
        match self {
            Side::Sqlite(taken) => {
                let (conn, health) = taken.parts();
                Conn::Sqlite(GuardedConnection::new(conn, rules, health))
            }
            Side::UserSqlite { taken, .. } => {
                let (conn, health) = taken.parts();
                Conn::UserSqlite(GuardedConnection::new(conn, rules, health))
            }
            Side::Postgres(taken) => {
                let (conn, health) = taken.parts();
                Conn::Postgres(GuardedConnection::new(conn, rules, health))
            }
        }
    }
}

/// A transaction that writes. Dropped without a commit, or after a statement of it failed, its connection is closed.
pub struct Tx {
    /// Dropped first: it ends before the connection is free.
    pub(super) _turn: Option<Turn>,
    pub(super) side: Side,
    pub(super) rules: Rules,
}

impl Tx {
    /// The connection it runs on.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(self.rules.clone())
    }

    /// The number of its connection, from 1: a newer one has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }

    /// Takes a lent transaction back, before anything of ours is written in it. `Err(Aborted)` when somebody else's statements left it failed or
    /// ended it: what is written on its connection then would be committed at once, one statement after the other.
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

    /// Commits. `Err(Aborted)` when a statement of it failed before, whoever ran that: nothing is written then. After any other error the
    /// outcome is not known.
    pub async fn commit(mut self) -> Result<()> {
        match &mut self.side {
            Side::Sqlite(taken) => {
                let pending = std::mem::take(&mut taken.health.pending);
                end(taken, &self.rules, async |conn| sqlite::end(conn, pending, sql::COMMIT).await).await
            }
            Side::UserSqlite { taken, .. } => end(taken, &self.rules, async |conn| user_sqlite::words(conn, sql::COMMIT).await).await,
            Side::Postgres(taken) => {
                // The commit of a failed transaction answers with success, so a statement that fails in it goes ahead. Our own failures are known.
                let text = if taken.health.was_used_by_user { sql::COMMIT_AFTER_USER } else { sql::COMMIT };
                end(taken, &self.rules, async |conn| postgres::words(conn, text).await).await
            }
        }
    }

    /// Gives it up without closing the connection. Nothing is written.
    pub async fn rollback(mut self) -> Result<()> {
        match &mut self.side {
            Side::Sqlite(taken) => {
                taken.health.pending.clear();
                end(taken, &self.rules, async |conn| sqlite::end(conn, Vec::new(), sql::ROLLBACK).await).await
            }
            Side::UserSqlite { taken, .. } => end(taken, &self.rules, async |conn| user_sqlite::words(conn, sql::ROLLBACK).await).await,
            Side::Postgres(taken) => end(taken, &self.rules, async |conn| postgres::words(conn, sql::ROLLBACK).await).await,
        }
    }
}

/// Ends the transaction by `how`; only when that went well can the connection be used again.
async fn end<C: Connects>(taken: &mut Taken<C>, rules: &Rules, how: impl AsyncFnOnce(&mut C) -> sqlx::Result<()>) -> Result<()> {
    let (conn, health) = taken.parts();
    if health.is_broken {
        return Err(StoreError::Aborted);
    }
    health.is_broken = true;
    rules.failpoint.pass(|| "before a transaction ended".to_owned()).await?;
    match rules.within(health, how(conn)).await {
        Ok(()) => {
            // It was done, and a process that dies here never hears of it.
            rules.failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
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

/// A connection to read from.
pub struct Reader {
    pub(super) side: Side,
    pub(super) rules: Rules,
}

impl Reader {
    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(self.rules.clone())
    }

    /// The number of its connection, from 1: a newer one has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }
}

/// A connection that shares nothing with any other.
pub struct DedicatedConnection {
    pub(super) side: Side,
    pub(super) rules: Rules,
}

impl DedicatedConnection {
    /// Whether no statement on it failed or was abandoned.
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
        self.side.conn(self.rules.clone())
    }

    /// The number of its connection, from 1: a newer one has a higher number.
    pub(crate) fn number(&self) -> u64 {
        self.side.number()
    }
}

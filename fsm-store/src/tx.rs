//! A connection in use: a transaction, a reader, or a connection outside all pools.

use std::time::Duration;

#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnection;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteConnection;

use super::conn::Conn;
use super::drivers::for_driver;
use super::error::{Result, StoreError};
use super::guarded::StatementSettings;
use super::pool::{Connects, Ending, Taken};
#[cfg(feature = "sqlite")]
use super::shares::Place;
#[cfg(feature = "sqlite")]
use super::sqlite::file_versions::Turn;
#[cfg(feature = "sqlite")]
use super::sqlite::thread::SqliteThread;

pub(super) enum Side {
    #[cfg(feature = "sqlite")]
    Sqlite(Taken<SqliteThread>),
    #[cfg(feature = "sqlite")]
    UserSqlite(Taken<SqliteConnection>),
    #[cfg(feature = "postgres")]
    Postgres(Taken<PgConnection>),
}

impl Side {
    /// The number of the connection, from 1. A newer connection has a higher number.
    fn number(&self) -> u64 {
        for_driver!(Side, self, taken => taken.number)
    }

    fn conn(&mut self, statement_settings: &StatementSettings) -> Conn<'_> {
        for_driver!(Side, self, taken => taken.guarded(statement_settings).into())
    }
}

/// A transaction that writes. If it is dropped without a commit, or after one of its statements failed, its connection is closed.
pub struct Tx {
    /// Dropped first, so that the transaction is counted before the connection is free.
    #[cfg(feature = "sqlite")]
    _turn: Option<Turn>,
    side: Side,
    /// The permit for the only SQLite connection that writes, which the connection replaces.
    #[cfg(feature = "sqlite")]
    _place: Option<Place>,
    statement_settings: StatementSettings,
}

impl Tx {
    /// A transaction that has begun on this connection.
    pub(super) fn new(side: Side, statement_settings: &StatementSettings) -> Tx {
        Tx {
            #[cfg(feature = "sqlite")]
            _turn: None,
            side,
            #[cfg(feature = "sqlite")]
            _place: None,
            statement_settings: statement_settings.clone(),
        }
    }

    /// The same transaction, which is counted when it ends.
    #[cfg(feature = "sqlite")]
    pub(super) fn counted(self, turn: Option<Turn>) -> Tx {
        Tx { _turn: turn, ..self }
    }

    /// The same transaction, which keeps this permit until its connection is free.
    #[cfg(feature = "sqlite")]
    pub(super) fn in_place_of(self, place: Place) -> Tx {
        Tx { _place: Some(place), ..self }
    }

    /// The same transaction, with this limit on each of its operations.
    pub(super) fn limited(mut self, deadline: Duration) -> Tx {
        self.statement_settings.deadline = deadline;
        self
    }

    /// The connection of the transaction.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(&self.statement_settings)
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub fn number(&self) -> u64 {
        self.side.number()
    }

    /// Ends the use of the transaction by user code, before the engine writes in it. Returns `Err(Aborted)` if the user's statements left
    /// it failed or ended it: each later statement on the connection would then commit by itself.
    pub async fn take_back(&mut self) -> Result<()> {
        match self.conn().take_back().await {
            Err(StoreError::Database(error)) if error.as_database_error().is_some() => Err(StoreError::Aborted),
            done => done,
        }
    }

    /// Commits. Returns `Err(Aborted)` if an earlier statement of the transaction failed, the engine's or the user's: nothing is written
    /// then. After any other error the outcome is unknown.
    pub async fn commit(mut self) -> Result<()> {
        for_driver!(Side, &mut self.side, taken => end(taken, &self.statement_settings, Ending::Commit).await)
    }

    /// Rolls back without closing the connection.
    pub async fn rollback(mut self) -> Result<()> {
        for_driver!(Side, &mut self.side, taken => end(taken, &self.statement_settings, Ending::Rollback).await)
    }
}

/// Ends the transaction. The connection can be used again only if this succeeds.
async fn end<C: Connects>(taken: &mut Taken<C>, statement_settings: &StatementSettings, ending: Ending) -> Result<()> {
    let (conn, health) = taken.parts();
    if health.is_broken {
        return Err(StoreError::Aborted);
    }
    health.is_broken = true;
    statement_settings.failpoint.pass(|| "before a transaction ended".to_owned()).await?;
    let ended = conn.end(health, ending);
    match statement_settings.within(health, ended).await {
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
        self.side.conn(&self.statement_settings)
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub fn number(&self) -> u64 {
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
    pub fn is_usable(&self) -> bool {
        !for_driver!(Side, &self.side, taken => taken.health.is_broken)
    }

    /// The connection.
    pub fn conn(&mut self) -> Conn<'_> {
        self.side.conn(&self.statement_settings)
    }

    /// The number of its connection, from 1. A newer connection has a higher number.
    pub fn number(&self) -> u64 {
        self.side.number()
    }
}

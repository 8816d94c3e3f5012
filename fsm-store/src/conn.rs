//! A connection to either database, and the running of statements on it.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::hash::Hash;

#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnection;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteConnection;

use super::drivers::{Driver, for_driver};
use super::error::Result;
use super::guarded::{GuardedConnection, StatementSettings};
use super::rows::Row;
use super::sql::{self, Many, Sql};
#[cfg(feature = "sqlite")]
use super::sqlite::thread::SqliteThread;
use super::values::{Batch, Value};

/// A connection, usually inside a transaction.
pub enum Conn<'c> {
    /// A connection to SQLite that only this crate uses.
    #[cfg(feature = "sqlite")]
    Sqlite(GuardedConnection<'c, SqliteThread>),
    /// A connection to SQLite in whose transaction a user's statements run too.
    #[cfg(feature = "sqlite")]
    UserSqlite(GuardedConnection<'c, SqliteConnection>),
    /// A connection to PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(GuardedConnection<'c, PgConnection>),
}

impl Conn<'_> {
    /// The driver of the connection.
    pub(crate) fn driver(&self) -> Driver {
        match self {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(_) | Conn::UserSqlite(_) => Driver::Sqlite,
            #[cfg(feature = "postgres")]
            Conn::Postgres(_) => Driver::Postgres,
        }
    }

    /// True for PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.driver().is_postgres()
    }

    /// Runs later statements with the statement settings of a store's own connections.
    pub(super) fn set_statement_settings(&mut self, statement_settings: StatementSettings) {
        for_driver!(Conn, self, guarded => guarded.statement_settings = statement_settings);
    }

    /// The address of the connection, which identifies it.
    pub(super) fn address(&self) -> usize {
        for_driver!(Conn, self, guarded => std::ptr::from_ref(&*guarded.conn) as usize)
    }

    /// Runs one statement and returns its rows.
    pub(super) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        for_driver!(Conn, self, guarded => guarded.rows(sql, values).await)
    }

    /// Runs a statement with the rows of the batch and returns its rows. Runs nothing if the batch is empty.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        for_driver!(Conn, self, guarded => guarded.batch(sql, &batch).await)
    }

    /// Runs a statement that writes at most one row for each row of the batch. Returns the places of the batch rows for which it wrote
    /// none. `key` reads the key of a written row from the first columns of PostgreSQL's answer.
    pub(super) async fn missed<const WIDTH: usize, K: Eq + Hash>(
        &mut self,
        sql: &Many,
        batch: Batch<'_, WIDTH>,
        keys: &[K],
        key: impl Fn(&Row) -> Result<K>,
    ) -> Result<Vec<usize>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        for_driver!(Conn, self, guarded => guarded.missed(sql, &batch, keys, key).await)
    }

    /// Runs a statement without an answer. In a SQLite transaction it is sent together with the next statement, which may be the commit.
    pub(super) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        for_driver!(Conn, self, guarded => guarded.put(sql, &batch).await)
    }

    /// Resets `lock_timeout` for the rest of a PostgreSQL transaction. For transactions on which no other request depends: a lock is waited
    /// for up to the deadline.
    pub async fn wait_for_locks(&mut self) -> Result<()> {
        if self.is_postgres() { self.script(sql::LOCK_TIMEOUT_TO_DEFAULT).await } else { Ok(()) }
    }

    /// Runs a script of several statements without parameters inside the open transaction.
    pub async fn script(&mut self, text: &'static str) -> Result<()> {
        for_driver!(Conn, self, guarded => guarded.script(text).await)
    }

    /// Ends the use of the transaction by user code. Returns an error if the user's statements left it failed or ended it.
    pub(super) async fn take_back(&mut self) -> Result<()> {
        for_driver!(Conn, self, guarded => guarded.take_back().await)
    }
}

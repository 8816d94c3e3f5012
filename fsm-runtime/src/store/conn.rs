//! A connection to either database, and the running of statements on it.

use std::collections::HashSet;
use std::hash::Hash;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Postgres, SqlSafeStr, SqlStr, Sqlite, Transaction};

use super::error::Result;
use super::guarded::{GuardedConnection, StatementSettings};
use super::rows::Row;
use super::sql::{self, Many, Sql};
use super::thread::SqliteThread;
use super::values::{Batch, Value, kept};
use super::{postgres, user_sqlite};

/// A connection, usually inside a transaction.
pub enum Conn<'c> {
    /// A connection to SQLite that only this crate uses.
    Sqlite(GuardedConnection<'c, SqliteThread>),
    /// A connection to SQLite in whose transaction a user's statements run too.
    UserSqlite(GuardedConnection<'c, SqliteConnection>),
    /// A connection to PostgreSQL.
    Postgres(GuardedConnection<'c, PgConnection>),
}

impl<'c> From<&'c mut SqliteConnection> for Conn<'c> {
    /// Uses a transaction that the caller has begun and will end.
    fn from(conn: &'c mut SqliteConnection) -> Self {
        Conn::UserSqlite(GuardedConnection { conn, statement_settings: StatementSettings::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut PgConnection> for Conn<'c> {
    /// Uses a transaction that the caller has begun and will end.
    fn from(conn: &'c mut PgConnection) -> Self {
        Conn::Postgres(GuardedConnection { conn, statement_settings: StatementSettings::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut Transaction<'_, Sqlite>> for Conn<'c> {
    /// Uses the caller's transaction. The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Sqlite>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl<'c> From<&'c mut Transaction<'_, Postgres>> for Conn<'c> {
    /// Uses the caller's transaction. The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Postgres>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl Conn<'_> {
    /// Runs later statements with the statement settings of a store's own connections.
    pub(super) fn set_rules(&mut self, statement_settings: StatementSettings) {
        match self {
            Conn::Sqlite(guarded) => guarded.statement_settings = statement_settings,
            Conn::UserSqlite(guarded) => guarded.statement_settings = statement_settings,
            Conn::Postgres(guarded) => guarded.statement_settings = statement_settings,
        }
    }

    /// True for PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self, Conn::Postgres(_))
    }

    /// Runs one statement and returns its rows.
    pub(super) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(guarded) => guarded.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::UserSqlite(guarded) => guarded.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::Postgres(guarded) => guarded.rows(sql.postgres.into_sql_str(), values).await,
        }
    }

    /// Runs a statement that PostgreSQL commits by itself, and returns its rows. SQLite has no such statements; returns no rows.
    pub(super) async fn commit_single_statement(&mut self, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(_) | Conn::UserSqlite(_) => Ok(Vec::new()),
            Conn::Postgres(guarded) => {
                let rows = guarded.answer(text, arguments).await?;
                // The failpoint where the statement has committed and the process dies before it gets the answer.
                guarded.statement_settings.failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
                Ok(rows)
            }
        }
    }

    /// Runs a statement with the rows of the batch and returns its rows. Runs nothing if the batch is empty.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self {
            Conn::Sqlite(guarded) => guarded.batch(sql, batch.rows()).await,
            Conn::UserSqlite(guarded) => guarded.batch(sql, batch.rows()).await,
            Conn::Postgres(guarded) => {
                let mut arguments = PgArguments::default();
                batch.bind(&mut arguments)?;
                guarded.answer(kept(sql, true), arguments).await
            }
        }
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
        match self {
            _ if batch.is_empty() => Ok(Vec::new()),
            Conn::Sqlite(guarded) => guarded.missed(sql, batch.rows()).await,
            Conn::UserSqlite(guarded) => guarded.missed(sql, batch.rows()).await,
            Conn::Postgres(_) => {
                let written = self.batch(sql, batch).await?.iter().map(key).collect::<Result<HashSet<K>>>()?;
                Ok(keys.iter().enumerate().filter(|(_, key)| !written.contains(key)).map(|(place, _)| place).collect())
            }
        }
    }

    /// Runs a statement without an answer. In a SQLite transaction it is sent together with the next statement, which may be the commit.
    pub(super) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            _ if batch.is_empty() => Ok(()),
            Conn::Sqlite(guarded) if guarded.is_in_transaction() => {
                guarded.later(sql, batch.rows());
                Ok(())
            }
            _ => self.batch(sql, batch).await.map(drop),
        }
    }

    /// Resets `lock_timeout` for the rest of a PostgreSQL transaction. For transactions on which no other request depends: a lock is waited
    /// for up to the deadline.
    pub(crate) async fn wait_for_locks(&mut self) -> Result<()> {
        if self.is_postgres() { self.script(sql::PATIENT).await } else { Ok(()) }
    }

    /// Runs a script of several statements without parameters inside the open transaction.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        match self {
            Conn::Sqlite(guarded) => guarded.script(text).await,
            Conn::UserSqlite(guarded) => guarded.guarded(text, async |conn| user_sqlite::words(conn, text).await).await,
            Conn::Postgres(guarded) => guarded.guarded(text, async |conn| postgres::words(conn, text).await).await,
        }
    }
}

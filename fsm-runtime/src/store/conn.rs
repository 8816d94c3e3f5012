//! One connection of either database, and how a statement is run on it.

use std::collections::HashSet;
use std::hash::Hash;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Postgres, SqlSafeStr, SqlStr, Sqlite, Transaction};

use super::error::Result;
use super::guarded::{GuardedConnection, Rules};
use super::rows::Row;
use super::sql::{self, Many, Sql};
use super::thread::SqliteThread;
use super::values::{Batch, Value, kept};
use super::{postgres, user_sqlite};

/// A connection, most often inside a transaction.
pub enum Conn<'c> {
    /// To SQLite, of ours alone.
    Sqlite(GuardedConnection<'c, SqliteThread>),
    /// To SQLite, and in its transaction somebody else's statements run too.
    UserSqlite(GuardedConnection<'c, SqliteConnection>),
    /// To PostgreSQL.
    Postgres(GuardedConnection<'c, PgConnection>),
}

impl<'c> From<&'c mut SqliteConnection> for Conn<'c> {
    /// A transaction that the caller began and will end.
    fn from(conn: &'c mut SqliteConnection) -> Self {
        Conn::UserSqlite(GuardedConnection { conn, rules: Rules::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut PgConnection> for Conn<'c> {
    /// A transaction that the caller began and will end.
    fn from(conn: &'c mut PgConnection) -> Self {
        Conn::Postgres(GuardedConnection { conn, rules: Rules::DEFAULT, health: None })
    }
}

impl<'c> From<&'c mut Transaction<'_, Sqlite>> for Conn<'c> {
    /// The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Sqlite>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl<'c> From<&'c mut Transaction<'_, Postgres>> for Conn<'c> {
    /// The caller ends it.
    fn from(tx: &'c mut Transaction<'_, Postgres>) -> Self {
        Conn::from(&mut **tx)
    }
}

impl Conn<'_> {
    /// Statements on it are run like those on the connections of a store.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        match self {
            Conn::Sqlite(guarded) => guarded.rules = rules,
            Conn::UserSqlite(guarded) => guarded.rules = rules,
            Conn::Postgres(guarded) => guarded.rules = rules,
        }
    }

    /// Whether this is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self, Conn::Postgres(_))
    }

    /// Runs one statement and gives its rows.
    pub(super) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(guarded) => guarded.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::UserSqlite(guarded) => guarded.rows(sql.sqlite.into_sql_str(), values).await,
            Conn::Postgres(guarded) => guarded.rows(sql.postgres.into_sql_str(), values).await,
        }
    }

    /// Runs a statement that PostgreSQL commits by itself, and gives its rows. SQLite has no such statements, and answers with none.
    pub(super) async fn commit_single_statement(&mut self, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
        match self {
            Conn::Sqlite(_) | Conn::UserSqlite(_) => Ok(Vec::new()),
            Conn::Postgres(guarded) => {
                let rows = guarded.answer(text, arguments).await?;
                // It was done, and a process that dies here never hears of it.
                guarded.rules.failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
                Ok(rows)
            }
        }
    }

    /// Runs a statement about the rows of the batch, and gives the rows it answers with. Nothing is run for an empty batch.
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

    /// Runs a statement that writes at most one row for each of these, and gives the places of those for which it wrote none. PostgreSQL
    /// answers with those that are written, by their first columns, as many as `key` takes.
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

    /// Runs a statement that answers nothing. In a transaction of SQLite's it is said together with what comes next, which may be the commit.
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

    /// The rest of the transaction waits for locks as long as the deadline allows: for those who have nobody else to look after.
    pub(crate) async fn wait_for_locks(&mut self) -> Result<()> {
        if self.is_postgres() { self.script(sql::PATIENT).await } else { Ok(()) }
    }

    /// Runs a script of several statements without values, inside the transaction that is open.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        match self {
            Conn::Sqlite(guarded) => guarded.script(text).await,
            Conn::UserSqlite(guarded) => guarded.guarded(text, async |conn| user_sqlite::words(conn, text).await).await,
            Conn::Postgres(guarded) => guarded.guarded(text, async |conn| postgres::words(conn, text).await).await,
        }
    }
}

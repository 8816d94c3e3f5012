//! Statements on this crate's own SQLite connections, with few round trips to the connection's thread: one takes longer than most
//! statements.

use std::sync::Arc;

use rusqlite::Connection;
use sqlx::SqlSafeStr;

use super::thread::{Answer, SqliteCommand, SqliteThread, in_turn, say, words};
use crate::error::Result;
use crate::guarded::GuardedConnection;
use crate::rows::Row;
use crate::sql::{Many, Sql};
use crate::values::{Batch, Value};

impl GuardedConnection<'_, SqliteThread> {
    /// Runs a statement with numbered parameters and returns its rows.
    pub(crate) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let command = SqliteCommand::once(sql.sqlite.into_sql_str(), values);
        let found = self.batch_commit(sql.sqlite, command, SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// Runs a statement once for each of these rows and returns the rows of all answers.
    pub(crate) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        let found = self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, batch.rows()), SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// Like `batch`, but returns the places of the rows for which nothing was written. SQLite tells this without the keys.
    pub(crate) async fn missed<const WIDTH: usize, K>(
        &mut self,
        sql: &Many,
        batch: &Batch<'_, WIDTH>,
        _keys: &[K],
        _key: impl Fn(&Row) -> Result<K>,
    ) -> Result<Vec<usize>> {
        self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, batch.rows()), SqliteCommand::carry_out).await
    }

    /// Runs a statement without an answer. In a transaction it is sent together with the next statement, which may be the commit.
    pub(crate) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<()> {
        match self.health.as_deref_mut().filter(|health| health.is_open) {
            Some(health) => health.pending.push(SqliteCommand::of_each(sql, batch.rows())),
            None => drop(self.batch(sql, batch).await?),
        }
        Ok(())
    }

    /// Does nothing: no user code runs on this connection.
    pub(crate) async fn take_back(&mut self) -> Result<()> {
        Ok(())
    }

    /// Runs a text of several statements without parameters.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        let pending = self.pending();
        let run = move |connection: &mut Connection| {
            say(&pending, connection)?;
            connection.execute_batch(text)
        };
        self.guarded(text, async |conn| conn.run(run).await).await
    }

    /// Sends the queued commands and this one in one round trip. A statement outside a transaction is retried while another process writes.
    async fn batch_commit<T: Send + 'static>(
        &mut self,
        text: &str,
        said: SqliteCommand,
        how: impl Fn(&SqliteCommand, &Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (pending, is_alone) = (self.pending(), self.health.as_ref().is_some_and(|health| !health.is_open));
        let run = move |connection: &mut Connection| {
            say(&pending, connection)?;
            if is_alone { in_turn(|| how(&said, connection)) } else { how(&said, connection) }
        };
        self.guarded(text, async |conn| conn.run(run).await).await
    }

    fn pending(&mut self) -> Vec<SqliteCommand> {
        self.health.as_deref_mut().map(|health| std::mem::take(&mut health.pending)).unwrap_or_default()
    }

    fn read(&self, answer: Answer) -> Vec<Row> {
        self.statement_settings.failpoint.answered(answer.rows());
        rows(answer)
    }
}

/// Begins a transaction. Retries while another process writes.
pub(super) async fn begin(conn: &mut SqliteThread, text: &'static str) -> sqlx::Result<()> {
    conn.run(move |connection| in_turn(|| words(connection, text))).await
}

/// Ends a transaction after the queued commands.
pub(super) async fn end(conn: &mut SqliteThread, pending: Vec<SqliteCommand>, text: &'static str) -> sqlx::Result<()> {
    conn.run(move |connection| {
        say(&pending, connection)?;
        words(connection, text)
    })
    .await
}

/// The rows of an answer.
pub(super) fn rows(answer: Answer) -> Vec<Row> {
    let answer = Arc::new(answer);
    (0..answer.rows()).map(|row| Row::Sqlite(Arc::clone(&answer), row)).collect()
}

//! Statements on this crate's own SQLite connections, with few round trips to the connection's thread: one takes longer than most
//! statements.

use std::sync::Arc;

use rusqlite::Connection;
use sqlx::SqlStr;

use super::error::Result;
use super::guarded::GuardedConnection;
use super::rows::Row;
use super::sql::Many;
use super::thread::{Answer, SqliteCommand, SqliteThread, in_turn, say, words};
use super::values::Value;

impl GuardedConnection<'_, SqliteThread> {
    /// True if a transaction is open that the store will end.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_open)
    }

    /// Queues a statement for these rows. It is sent together with the next statement, which may be the commit.
    pub(super) fn later<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) {
        let health = self.health.as_deref_mut().expect("only a transaction of ours has a later");
        health.pending.push(SqliteCommand::of_each(sql, rows));
    }

    /// Runs a statement with numbered parameters and returns its rows.
    pub(super) async fn rows(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let said = text.clone();
        let found = self.batch_commit(said.as_str(), SqliteCommand::once(text, values), SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// Runs a statement once for each of these rows and returns the rows of all answers.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<Row>> {
        let found = self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, rows), SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// Like `batch`, but returns the places of the rows for which nothing was written.
    pub(super) async fn missed<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<usize>> {
        self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, rows), SqliteCommand::carry_out).await
    }

    /// Runs a text of several statements without parameters.
    pub(super) async fn script(&mut self, text: &'static str) -> Result<()> {
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

//! How SQLite is told, on a connection of ours: in few trips to the thread that each connection has. A trip takes longer than most statements.

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
    /// Whether a transaction is open that will be ended by us.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.health.as_ref().is_some_and(|health| health.is_open)
    }

    /// The statement is carried out for these rows before whatever comes next, which may be the commit.
    pub(super) fn later<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) {
        let health = self.health.as_deref_mut().expect("only a transaction of ours has a later");
        health.pending.push(SqliteCommand::of_each(sql, rows));
    }

    /// Runs a statement that finds its values by their numbers, and gives its rows.
    pub(super) async fn rows(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let said = text.clone();
        let found = self.batch_commit(said.as_str(), SqliteCommand::once(text, values), SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// Runs a statement for each of these rows, and gives the rows it answers with.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<Row>> {
        let found = self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, rows), SqliteCommand::ask).await?;
        Ok(self.read(found))
    }

    /// The same, and gives the places of the rows for which it wrote nothing.
    pub(super) async fn missed<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<usize>> {
        self.batch_commit(sql.sqlite, SqliteCommand::of_each(sql, rows), SqliteCommand::carry_out).await
    }

    /// Runs a text of several statements without values.
    pub(super) async fn script(&mut self, text: &'static str) -> Result<()> {
        let pending = self.pending();
        let run = move |connection: &mut Connection| {
            say(&pending, connection)?;
            connection.execute_batch(text)
        };
        self.guarded(text, async |conn| conn.run(run).await).await
    }

    /// Carries out what is unsaid and then this, in one trip. A statement that stands alone may have to wait for its turn.
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
        self.rules.failpoint.answered(answer.rows());
        rows(answer)
    }
}

/// Begins a transaction that writes, when it is its turn.
pub(super) async fn begin(conn: &mut SqliteThread, text: &'static str) -> sqlx::Result<()> {
    conn.run(move |connection| in_turn(|| words(connection, text))).await
}

/// Ends a transaction, after what is unsaid.
pub(super) async fn end(conn: &mut SqliteThread, pending: Vec<SqliteCommand>, text: &'static str) -> sqlx::Result<()> {
    conn.run(move |connection| {
        say(&pending, connection)?;
        words(connection, text)
    })
    .await
}

/// Each row of an answer.
pub(super) fn rows(answer: Answer) -> Vec<Row> {
    let answer = Arc::new(answer);
    (0..answer.rows()).map(|row| Row::Sqlite(Arc::clone(&answer), row)).collect()
}

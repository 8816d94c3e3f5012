//! A transaction that the SQLite thread runs by itself, so that the next one can already wait in the thread's queue.

use rusqlite::{Connection, ErrorCode};
use sqlx::SqlStr;

use super::command::{Answer, SqliteCommand};
use crate::sql::{self, Many};
use crate::sqlite::turn::Turn;
use crate::values::Batch;

/// The statements of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    said: SqliteCommand,
    /// If true, the whole transaction is rolled back unless the statement writes each of its rows.
    is_guard: bool,
}

impl Whole {
    /// Adds a statement for these rows.
    pub(crate) fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) {
        self.add(sql, batch, false);
    }

    /// Adds a guard: a statement that must write each of these rows.
    pub(crate) fn guard<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) {
        self.add(sql, batch, true);
    }

    fn add<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>, is_guard: bool) {
        if !batch.is_empty() {
            self.parts.push(Part { said: SqliteCommand::of_each(sql, batch.rows()), is_guard });
        }
    }

    /// Runs the transaction. Rolls back if another connection has written since `data_version`, if `still` returns false, or if a guard
    /// fails. Returns whether it committed.
    pub(crate) fn carry_out(&self, connection: &Connection, data_version: i64, still: impl FnOnce() -> bool) -> rusqlite::Result<bool> {
        in_turn(|| words(connection, sql::BEGIN_SQLITE))?;
        let version: i64 = connection.prepare_cached(sql::DATA_VERSION.sqlite)?.query_row([], |row| row.get(0))?;
        let mut is_good = version == data_version && still();
        for part in &self.parts {
            is_good = is_good && (part.said.carry_out(connection)?.is_empty() || !part.is_guard);
        }
        words(connection, if is_good { sql::COMMIT } else { sql::ROLLBACK })?;
        Ok(is_good)
    }
}

/// Runs a statement that writes, logs the ids that it returns, and runs `ask` for each of them, in one transaction.
pub(crate) fn ask_in_turn(
    write: &SqliteCommand,
    log: impl FnOnce(&[u8]) -> SqliteCommand,
    ask: SqlStr,
    connection: &Connection,
) -> rusqlite::Result<Answer> {
    in_turn(|| words(connection, sql::BEGIN_SQLITE))?;
    let written = write.ask(connection)?;
    if written.rows() > 0 {
        let mut ids = Vec::with_capacity(16 * written.rows());
        for row in 0..written.rows() {
            ids.extend_from_slice(&written.get::<Vec<u8>>(row, 0).map_err(|_| rusqlite::Error::InvalidQuery)?);
        }
        log(&ids).carry_out(connection)?;
    }
    let answer = written.each(ask).ask(connection)?;
    words(connection, sql::COMMIT)?;
    Ok(answer)
}

/// Runs a statement without parameters, and keeps it prepared.
pub(crate) fn words(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(text)?.raw_execute().map(drop)
}

/// Retries `attempt` while another process writes.
pub(crate) fn in_turn<T>(mut attempt: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let turn = Turn::wanted();
    loop {
        let done = attempt();
        let is_busy = done.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DatabaseBusy);
        match turn.next_look(is_busy) {
            Some(wait) => std::thread::sleep(wait),
            None => return done,
        }
    }
}

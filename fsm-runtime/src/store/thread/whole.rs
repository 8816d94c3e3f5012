//! A transaction that SQLite's thread carries out by itself, so that the next one can wait for it there.

use rusqlite::Connection;
use sqlx::SqlStr;

use super::command::{Answer, SqliteCommand};
use super::{in_turn, words};
use crate::store::sql::{self, Many};
use crate::store::values::Batch;

/// What a transaction writes.
#[derive(Debug, Default)]
pub(in crate::store) struct Whole {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    said: SqliteCommand,
    /// Unless it writes each of its rows, nothing at all is written.
    is_guard: bool,
}

impl Whole {
    /// One more statement, for each of these rows.
    pub(in crate::store) fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) {
        self.add(sql, batch, false);
    }

    /// The same, and each of the rows must be written.
    pub(in crate::store) fn guard<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) {
        self.add(sql, batch, true);
    }

    fn add<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>, is_guard: bool) {
        if !batch.is_empty() {
            self.parts.push(Part { said: SqliteCommand::of_each(sql, batch.rows()), is_guard });
        }
    }

    /// Carries it out, unless another connection wrote since that version of the file, or `still` does not hold any more. Whether it is
    /// committed; if not, nothing is written.
    pub(in crate::store) fn carry_out(
        &self,
        connection: &Connection,
        data_version: i64,
        still: impl FnOnce() -> bool,
    ) -> rusqlite::Result<bool> {
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

/// Carries out a statement that writes, and asks another one for each row that it answers with, in a transaction.
pub(in crate::store) fn ask_in_turn(write: &SqliteCommand, ask: SqlStr, connection: &Connection) -> rusqlite::Result<Answer> {
    in_turn(|| words(connection, sql::BEGIN_SQLITE))?;
    let written = write.ask(connection)?;
    let answer = written.each(ask).ask(connection)?;
    words(connection, sql::COMMIT)?;
    Ok(answer)
}

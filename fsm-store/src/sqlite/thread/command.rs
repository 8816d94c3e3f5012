//! The commands to the SQLite thread and its answers. The values of all rows are in one buffer.

use std::ops::Range;

use rusqlite::types::{FromSql, FromSqlError, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection};
use sqlx::SqlStr;

use crate::sql::Many;
use crate::values::{Value, kept};

/// A list of values of any type.
#[derive(Debug, Default)]
pub(crate) struct Values {
    cells: Vec<Cell>,
    /// The bytes of all texts and blobs.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Cell {
    Null,
    Number(i64),
    Real(f64),
    Text(Range<usize>),
    Bytes(Range<usize>),
}

/// A statement and the rows of its parameters.
#[derive(Debug)]
pub(crate) struct SqliteCommand {
    text: SqlStr,
    /// True if the parameters have numbers (`$2`), false if they are positional.
    is_numbered: bool,
    /// The number of parameters for each row.
    width: usize,
    rows: usize,
    values: Values,
}

/// The rows of an answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    width: usize,
    rows: usize,
    values: Values,
}

impl Values {
    fn put(&mut self, value: &Value<'_>) {
        match *value {
            Value::Id(None) | Value::Number(None) | Value::Text(None) | Value::Bytes(None) => self.cells.push(Cell::Null),
            Value::Id(Some(id)) => self.put_bytes(id.as_bytes()),
            Value::Number(Some(number)) => self.cells.push(Cell::Number(number)),
            Value::Text(Some(text)) => self.put_text(text.as_bytes()),
            Value::Bytes(Some(bytes)) => self.put_bytes(bytes),
            Value::Flag(flag) => self.cells.push(Cell::Number(i64::from(flag))),
            Value::Texts(words) => self.put_text(serde_json::json!(words).to_string().as_bytes()),
        }
    }

    fn put_found(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Null => self.cells.push(Cell::Null),
            ValueRef::Integer(number) => self.cells.push(Cell::Number(number)),
            ValueRef::Real(number) => self.cells.push(Cell::Real(number)),
            ValueRef::Text(text) => self.put_text(text),
            ValueRef::Blob(bytes) => self.put_bytes(bytes),
        }
    }

    fn put_text(&mut self, text: &[u8]) {
        let place = self.kept(text);
        self.cells.push(Cell::Text(place));
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        let place = self.kept(bytes);
        self.cells.push(Cell::Bytes(place));
    }

    fn kept(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    fn at(&self, place: usize) -> ValueRef<'_> {
        match self.cells.get(place) {
            // SQLite treats a parameter that is not bound as null.
            None | Some(Cell::Null) => ValueRef::Null,
            Some(Cell::Number(number)) => ValueRef::Integer(*number),
            Some(Cell::Real(number)) => ValueRef::Real(*number),
            Some(Cell::Text(place)) => ValueRef::Text(&self.bytes[place.clone()]),
            Some(Cell::Bytes(place)) => ValueRef::Blob(&self.bytes[place.clone()]),
        }
    }
}

impl SqliteCommand {
    /// A statement that runs once. Its parameters are numbered or positional.
    pub(crate) fn once(text: SqlStr, values: &[Value<'_>]) -> SqliteCommand {
        SqliteCommand { is_numbered: true, rows: 1, ..SqliteCommand::of(text, values.len(), values) }
    }

    /// A statement that runs once for each row, with the row's values as positional parameters.
    pub(crate) fn of_each<const WIDTH: usize>(sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> SqliteCommand {
        SqliteCommand::of(kept(sql, false), WIDTH, rows.as_flattened())
    }

    fn of(text: SqlStr, width: usize, all: &[Value<'_>]) -> SqliteCommand {
        let mut values = Values { cells: Vec::with_capacity(all.len()), bytes: Vec::new() };
        all.iter().for_each(|value| values.put(value));
        SqliteCommand { text, is_numbered: false, width, rows: all.len().checked_div(width).unwrap_or(0), values }
    }

    /// Runs the statement. Returns the places of the rows for which nothing was written.
    pub(crate) fn carry_out(&self, connection: &Connection) -> rusqlite::Result<Vec<usize>> {
        let mut statement = connection.prepare_cached(self.text.as_str())?;
        let mut missed = Vec::new();
        for row in 0..self.rows {
            self.bind(&mut statement, row)?;
            if statement.raw_execute()? == 0 {
                missed.push(row);
            }
        }
        Ok(missed)
    }

    /// Runs the statement and returns the rows of its answer.
    pub(crate) fn ask(&self, connection: &Connection) -> rusqlite::Result<Answer> {
        let mut statement = connection.prepare_cached(self.text.as_str())?;
        let mut answer = Answer { width: statement.column_count(), ..Answer::default() };
        for row in 0..self.rows {
            self.bind(&mut statement, row)?;
            let mut rows = statement.raw_query();
            while let Some(found) = rows.next()? {
                for column in 0..answer.width {
                    answer.values.put_found(found.get_ref(column)?);
                }
                answer.rows += 1;
            }
        }
        Ok(answer)
    }

    fn bind(&self, statement: &mut CachedStatement<'_>, row: usize) -> rusqlite::Result<()> {
        for parameter in 1..=statement.parameter_count() {
            // SQLite numbers the parameters by first occurrence, so `$2` may have another number than 2.
            let name = if self.is_numbered { statement.parameter_name(parameter) } else { None };
            let number = name.and_then(|name| name.strip_prefix('$')?.parse().ok()).unwrap_or(parameter);
            let value = self.values.at(row * self.width + number - 1);
            statement.raw_bind_parameter(parameter, ToSqlOutput::Borrowed(value))?;
        }
        Ok(())
    }
}

impl Answer {
    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// A statement that runs once for each of the rows.
    pub(super) fn each(self, text: SqlStr) -> SqliteCommand {
        SqliteCommand { text, is_numbered: false, width: self.width, rows: self.rows, values: self.values }
    }

    /// The value in this column of this row.
    pub(crate) fn get<T: FromSql>(&self, row: usize, column: usize) -> Result<T, FromSqlError> {
        if column >= self.width {
            return Err(FromSqlError::OutOfRange(i64::try_from(column).unwrap_or(i64::MAX)));
        }
        T::column_result(self.values.at(row * self.width + column))
    }
}

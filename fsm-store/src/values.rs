//! The parameters of statements, and the texts of statements about many rows.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use uuid::Uuid;

use super::sql::Many;

/// A parameter of a statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Id(Option<Uuid>),
    Number(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
    Flag(bool),
    /// An array in PostgreSQL, a JSON text in SQLite. Not permitted in a batch.
    Texts(&'a [String]),
}

/// The values of one row.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::values::Value::from($value)),*] };
}
pub(super) use values;

macro_rules! value {
    ($($variant:ident: $type:ty),*) => { $(
        impl<'a> From<$type> for Value<'a> {
            fn from(value: $type) -> Self {
                Value::$variant(Some(value))
            }
        }
        impl<'a> From<Option<$type>> for Value<'a> {
            fn from(value: Option<$type>) -> Self {
                Value::$variant(value)
            }
        }
    )* };
}

value!(Id: Uuid, Number: i64, Text: &'a str, Bytes: &'a [u8]);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Flag(value)
    }
}

/// Many rows for one statement.
#[derive(Debug)]
pub(super) struct Batch<'a, const WIDTH: usize> {
    rows: Vec<[Value<'a>; WIDTH]>,
}

impl<'a, const WIDTH: usize> Batch<'a, WIDTH> {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn rows(&self) -> &[[Value<'a>; WIDTH]] {
        &self.rows
    }
}

impl<'a, const WIDTH: usize> FromIterator<[Value<'a>; WIDTH]> for Batch<'a, WIDTH> {
    fn from_iter<I: IntoIterator<Item = [Value<'a>; WIDTH]>>(rows: I) -> Self {
        Batch { rows: rows.into_iter().collect() }
    }
}

impl<'a, const WIDTH: usize> From<Vec<[Value<'a>; WIDTH]>> for Batch<'a, WIDTH> {
    fn from(rows: Vec<[Value<'a>; WIDTH]>) -> Self {
        Batch { rows }
    }
}

/// The text of a statement for one of the databases, built once and cached.
///
/// The cache key is the content from which the text is built. The address would not do: two statements may share an address or a text.
pub(super) fn kept(sql: &Many, is_postgres: bool) -> SqlStr {
    type Texts = HashMap<(&'static str, &'static str, bool), Arc<str>>;
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (body, text): (_, fn(&Many) -> String) =
        if is_postgres { (sql.postgres, Many::for_postgres) } else { (sql.sqlite, Many::for_sqlite) };
    let kept = texts.entry((sql.columns, body, is_postgres)).or_insert_with(|| text(sql).into());
    AssertSqlSafe(Arc::clone(kept)).into_sql_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &str = "call_id uuid";

    fn said(sql: &Many, is_postgres: bool) -> String {
        kept(sql, is_postgres).as_str().to_owned()
    }

    /// Statements that exist only for PostgreSQL have the same columns and an empty text for SQLite.
    #[test]
    fn two_statements_are_never_confused() {
        let shared = "select w.call_id from w";
        let one = Many { columns: COLUMNS, sqlite: "", postgres: "select 1 from w" };
        let other = Many { columns: COLUMNS, sqlite: "", postgres: "select 2 from w" };
        let third = Many { columns: "call_id uuid, name text", sqlite: shared, postgres: shared };
        // Its text begins at the same address as the text of the third one.
        let fourth = Many { columns: third.columns, sqlite: &shared[..16], postgres: &shared[..16] };
        let all = [&one, &other, &third, &fourth];
        for _ in 0..2 {
            for sql in all {
                assert_eq!(said(sql, true), sql.for_postgres());
                assert_eq!(said(sql, false), sql.for_sqlite());
            }
        }
    }
}

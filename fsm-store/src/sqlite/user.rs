//! A SQLite transaction on the user's connection, or on one that also runs the user's statements. It writes few rows, so each one is a
//! statement of its own.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{SqlSafeStr, SqlStr, Sqlite};

use super::turn::Turn;
use crate::error::{Result, sqlite_code};
use crate::guarded::{GuardedConnection, counted};
use crate::rows::Row;
use crate::sql::{self, Many, Sql};
use crate::values::{Batch, Value, kept};

/// The primary result code `SQLITE_BUSY`.
const BUSY: i64 = 5;

impl GuardedConnection<'_, SqliteConnection> {
    /// Prepares the connection for a user's own statements in this transaction. The driver then knows of the transaction, so that a `begin`
    /// of the user is a savepoint.
    pub(super) async fn hand_to_user(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| counted(conn).await).await?;
        self.note_user();
        Ok(())
    }

    /// Runs a statement with numbered parameters and returns its rows.
    pub(crate) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        self.answer(sql.sqlite.into_sql_str(), values).await
    }

    /// Runs a statement once for each of these rows and returns the rows of all answers.
    pub(crate) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for row in batch.rows() {
            found.append(&mut self.answer(kept(sql, false), row).await?);
        }
        Ok(found)
    }

    /// Like `batch`, but returns the places of the rows for which nothing was written. SQLite tells this without the keys.
    pub(crate) async fn missed<const WIDTH: usize, K>(
        &mut self,
        sql: &Many,
        batch: &Batch<'_, WIDTH>,
        _keys: &[K],
        _key: impl Fn(&Row) -> Result<K>,
    ) -> Result<Vec<usize>> {
        let mut missed = Vec::new();
        for (place, row) in batch.rows().iter().enumerate() {
            let query = sqlx::query_with::<Sqlite, _>(kept(sql, false), arguments(row));
            let done = self.guarded(sql.sqlite, async |conn| query.execute(conn).await).await?;
            if done.rows_affected() == 0 {
                missed.push(place);
            }
        }
        Ok(missed)
    }

    /// Runs a statement without an answer.
    pub(crate) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<()> {
        self.batch(sql, batch).await.map(drop)
    }

    /// Runs a text of several statements without parameters.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        self.guarded(text, async |conn| words(conn, text).await).await
    }

    /// Ends the use of the transaction by user code. Returns an error if the user's statements left it failed or ended it.
    pub(crate) async fn take_back(&mut self) -> Result<()> {
        self.script(sql::RELEASE_LENT).await
    }

    /// Runs a statement with numbered or positional parameters and returns its rows.
    async fn answer(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let query = sqlx::query_with::<Sqlite, _>(text.clone(), arguments(values));
        let rows = self.guarded(text.as_str(), async |conn| query.fetch_all(conn).await).await?;
        self.statement_settings.failpoint.answered(rows.len());
        Ok(rows.into_iter().map(Row::UserSqlite).collect())
    }
}

/// Begins a transaction that writes. Retries while another process writes.
pub(super) async fn begin(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    let turn = Turn::wanted();
    loop {
        let begun = words(conn, sql::BEGIN_SQLITE).await;
        match turn.next_look(begun.as_ref().is_err_and(is_busy)) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return begun,
        }
    }
}

/// True if another process's transaction prevents SQLite from writing.
fn is_busy(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlite_code).is_some_and(|code| code & 0xff == BUSY)
}

/// Runs a text without parameters.
pub(super) async fn words(conn: &mut SqliteConnection, text: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(text).execute(conn).await.map(drop)
}

fn arguments(values: &[Value<'_>]) -> SqliteArguments {
    use sqlx::Arguments;
    let mut arguments = SqliteArguments::default();
    for value in values {
        let bound = match *value {
            Value::Id(id) => arguments.add(id),
            Value::Number(number) => arguments.add(number),
            Value::Text(text) => arguments.add(text.map(str::to_owned)),
            Value::Bytes(bytes) => arguments.add(bytes.map(<[u8]>::to_vec)),
            Value::Flag(flag) => arguments.add(flag),
            Value::Texts(words) => arguments.add(serde_json::json!(words).to_string()),
        };
        bound.expect("SQLite keeps numbers, texts and bytes as they are");
    }
    arguments
}

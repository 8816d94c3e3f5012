//! A SQLite transaction on the user's connection, or on one that also runs the user's statements. It writes few rows, so each one is a
//! statement of its own.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{SqlStr, Sqlite};

use super::error::Result;
use super::guarded::{GuardedConnection, counted};
use super::rows::Row;
use super::sql::{self, Many};
use super::turn::Turn;
use super::values::{Value, kept};

impl GuardedConnection<'_, SqliteConnection> {
    /// Prepares the connection for a user's own statements in this transaction. The driver then knows of the transaction, so that a `begin`
    /// of the user is a savepoint.
    pub(super) async fn hand_to_user(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| counted(conn).await).await?;
        self.note_user();
        Ok(())
    }

    /// Runs a statement with numbered or positional parameters and returns its rows.
    pub(super) async fn rows(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let query = sqlx::query_with::<Sqlite, _>(text.clone(), arguments(values));
        let rows = self.guarded(text.as_str(), async |conn| query.fetch_all(conn).await).await?;
        self.statement_settings.failpoint.answered(rows.len());
        Ok(rows.into_iter().map(Row::UserSqlite).collect())
    }

    /// Runs a statement once for each of these rows and returns the rows of all answers.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for row in rows {
            found.append(&mut self.rows(text(sql), row).await?);
        }
        Ok(found)
    }

    /// Like `batch`, but returns the places of the rows for which nothing was written.
    pub(super) async fn missed<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<usize>> {
        let mut missed = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            let query = sqlx::query_with::<Sqlite, _>(text(sql), arguments(row));
            let done = self.guarded(sql.sqlite, async |conn| query.execute(conn).await).await?;
            if done.rows_affected() == 0 {
                missed.push(place);
            }
        }
        Ok(missed)
    }
}

/// Begins a transaction that writes. Retries while another process writes.
pub(super) async fn begin(conn: &mut SqliteConnection) -> sqlx::Result<()> {
    let turn = Turn::wanted();
    loop {
        let begun = words(conn, sql::BEGIN_SQLITE).await;
        match turn.next_look(begun.as_ref().is_err_and(super::error::is_busy)) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return begun,
        }
    }
}

/// Runs a text without parameters.
pub(super) async fn words(conn: &mut SqliteConnection, text: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(text).execute(conn).await.map(drop)
}

fn text(sql: &Many) -> SqlStr {
    kept(sql, false)
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

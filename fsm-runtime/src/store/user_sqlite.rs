//! A transaction in SQLite on somebody else's connection, or on one that somebody's own statements run on too: about few rows, and in no hurry.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{SqlStr, Sqlite};

use super::error::Result;
use super::guarded::{GuardedConnection, counted};
use super::rows::Row;
use super::sql::{self, Many};
use super::turn::Turn;
use super::values::{Value, kept};

impl GuardedConnection<'_, SqliteConnection> {
    /// The connection itself, for a user's own statements in this transaction. The driver knows of the transaction from now on, so that
    /// a `begin` of the user's is a savepoint.
    pub(super) async fn hand_to_user(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| counted(conn).await).await?;
        self.note_user();
        Ok(())
    }

    /// Runs a statement that finds its values by their numbers or in their order, and gives its rows.
    pub(super) async fn rows(&mut self, text: SqlStr, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let query = sqlx::query_with::<Sqlite, _>(text.clone(), arguments(values));
        let rows = self.guarded(text.as_str(), async |conn| query.fetch_all(conn).await).await?;
        self.rules.failpoint.answered(rows.len());
        Ok(rows.into_iter().map(Row::UserSqlite).collect())
    }

    /// Runs a statement for each of these rows, and gives the rows it answers with.
    pub(super) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, rows: &[[Value<'_>; WIDTH]]) -> Result<Vec<Row>> {
        let mut found = Vec::new();
        for row in rows {
            found.append(&mut self.rows(text(sql), row).await?);
        }
        Ok(found)
    }

    /// The same, and gives the places of the rows for which it wrote nothing.
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

/// Begins a transaction that writes, when it is its turn.
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

/// Runs a text without values.
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
            Value::Words(words) => arguments.add(serde_json::json!(words).to_string()),
        };
        bound.expect("SQLite keeps numbers, texts and bytes as they are");
    }
    arguments
}

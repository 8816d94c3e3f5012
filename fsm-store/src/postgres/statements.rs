//! Statements on PostgreSQL connections: arrays for many rows, so that few round trips are needed.

use std::collections::HashSet;
use std::hash::Hash;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Postgres, SqlSafeStr, SqlStr};

use crate::error::{Result, StoreError};
use crate::guarded::{GuardedConnection, counted};
use crate::rows::Row;
use crate::sql::{self, Many, Sql};
use crate::values::{Batch, Value, kept};

impl<'c> GuardedConnection<'c, PgConnection> {
    /// Prepares the connection for a user's own statements in this transaction: they get the database's usual lock timeout and planner
    /// settings.
    pub(super) async fn hand_to_user(&mut self) -> Result<()> {
        self.guarded("savepoint", async |conn| {
            words(conn, sql::AS_USUAL).await?;
            counted(conn).await
        })
        .await?;
        self.note_user();
        Ok(())
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(&mut self, sql: &Sql, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let mut arguments = PgArguments::default();
        for value in values {
            bind(&mut arguments, value)?;
        }
        self.answer(sql.postgres.into_sql_str(), arguments).await
    }

    /// Runs a statement about all of these rows and returns its rows.
    pub(crate) async fn batch<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<Vec<Row>> {
        self.answer(kept(sql, true), bound(batch)?).await
    }

    /// Like `batch`, but returns the places of the rows whose key no row of the answer has.
    pub(crate) async fn missed<const WIDTH: usize, K: Eq + Hash>(
        &mut self,
        sql: &Many,
        batch: &Batch<'_, WIDTH>,
        keys: &[K],
        key: impl Fn(&Row) -> Result<K>,
    ) -> Result<Vec<usize>> {
        let written = self.answer(kept(sql, true), bound(batch)?).await?.iter().map(key).collect::<Result<HashSet<K>>>()?;
        Ok(keys.iter().enumerate().filter(|(_, key)| !written.contains(key)).map(|(place, _)| place).collect())
    }

    /// Runs a statement without an answer.
    pub(crate) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: &Batch<'_, WIDTH>) -> Result<()> {
        self.answer(kept(sql, true), bound(batch)?).await.map(drop)
    }

    /// Runs a text of several statements without parameters.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<()> {
        self.guarded(text, async |conn| words(conn, text).await).await
    }

    /// Ends the use of the transaction by user code. Returns an error if the user's statements left it failed or ended it.
    pub(crate) async fn take_back(&mut self) -> Result<()> {
        self.script(sql::RELEASE_LENT).await
    }

    /// Runs a statement that commits by itself, and returns its rows.
    pub(crate) async fn commit_single_statement(&mut self, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
        let rows = self.answer(text, arguments).await?;
        // The failpoint where the statement has committed and the process dies before it gets the answer.
        self.statement_settings.failpoint.pass(|| "after a transaction ended, and never heard of it".to_owned()).await?;
        Ok(rows)
    }

    /// Runs a statement with these arguments and returns its rows.
    async fn answer(&mut self, text: SqlStr, arguments: PgArguments) -> Result<Vec<Row>> {
        let is_cached = self.statement_settings.postgres.is_cached;
        let is_alone = !is_cached && !self.is_in_transaction();
        let said = text.clone();
        let query = sqlx::query_with::<Postgres, _>(text, arguments).persistent(is_cached);
        let rows = self
            .guarded(said.as_str(), async |conn| {
                // Without prepared statements, a pooler may send each protocol message to another server unless they are in one
                // transaction.
                if is_alone {
                    words(conn, sql::BEGIN_POSTGRES).await?;
                }
                let rows = query.fetch_all(&mut *conn).await?;
                if is_alone {
                    words(conn, sql::COMMIT).await?;
                }
                Ok(rows)
            })
            .await?;
        self.statement_settings.failpoint.answered(rows.len());
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    fn is_in_transaction(&self) -> bool {
        self.health.as_ref().is_none_or(|health| health.is_open)
    }
}

impl<const WIDTH: usize> Batch<'_, WIDTH> {
    /// True if each column that is marked `same` has one value in all rows.
    pub(super) fn has_same(&self, sql: &Many) -> bool {
        let Some((first, others)) = self.rows().split_first() else { return false };
        let mut marked = sql.same().enumerate().filter(|(_, is_same)| *is_same);
        marked.all(|(column, _)| others.iter().all(|row| row[column] == first[column]))
    }

    /// Binds an array for each column, or the one value of a column for which `same` is true. There is at least one row.
    pub(super) fn bind(&self, arguments: &mut PgArguments, same: impl Iterator<Item = bool>) -> Result<()> {
        same.enumerate().try_for_each(|(column, is_same)| match is_same {
            true => bind(arguments, &self.rows()[0][column]),
            false => bind_column(arguments, self.rows().iter().map(|row| row[column])),
        })
    }
}

/// The arrays of a batch.
fn bound<const WIDTH: usize>(batch: &Batch<'_, WIDTH>) -> Result<PgArguments> {
    let mut arguments = PgArguments::default();
    batch.bind(&mut arguments, std::iter::repeat_n(false, WIDTH))?;
    Ok(arguments)
}

/// Runs a text without parameters in one round trip.
pub(super) async fn words(conn: &mut PgConnection, text: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(text).execute(conn).await.map(drop)
}

fn bind(arguments: &mut PgArguments, value: &Value<'_>) -> Result<()> {
    use sqlx::Arguments;
    match *value {
        Value::Id(id) => arguments.add(id),
        Value::Number(number) => arguments.add(number),
        Value::Text(text) => arguments.add(text),
        Value::Bytes(bytes) => arguments.add(bytes),
        Value::Flag(flag) => arguments.add(flag),
        Value::Texts(words) => arguments.add(words),
    }
    .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}

/// Binds one column of a batch as an array. All its values must have the variant of the first one.
fn bind_column<'a>(arguments: &mut PgArguments, column: impl Iterator<Item = Value<'a>> + Clone) -> Result<()> {
    use sqlx::Arguments;
    macro_rules! array {
        ($variant:ident) => {
            arguments
                .add(column.filter_map(|value| if let Value::$variant(value) = value { Some(value) } else { None }).collect::<Vec<_>>())
        };
    }
    match column.clone().next() {
        None => Ok(()),
        Some(Value::Id(_)) => array!(Id),
        Some(Value::Number(_)) => array!(Number),
        Some(Value::Text(_)) => array!(Text),
        Some(Value::Bytes(_)) => array!(Bytes),
        Some(Value::Flag(_)) => array!(Flag),
        Some(Value::Texts(_)) => Err("an array of arrays".into()),
    }
    .map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
}

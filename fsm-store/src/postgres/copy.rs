//! Copying the rows of tables from one PostgreSQL database to another.

use std::time::Duration;

use futures_util::StreamExt;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor};
use tokio::time::timeout;

use super::quoted;
use crate::error::{Result, StoreError};
use crate::sql;

/// A connection, and a schema of its database.
pub(super) type Side<'c> = (&'c mut PgConnection, &'c str);

/// Copies all rows of a table and returns their number. `silence` is the time limit for each part of the data.
pub(super) async fn table((from, from_schema): Side<'_>, (to, to_schema): Side<'_>, table: &str, silence: Duration) -> Result<u64> {
    let silent = |_| StoreError::Deadline(silence);
    let (from_schema, to_schema, table) = (quoted(from_schema), quoted(to_schema), quoted(table));
    let has_rows = sqlx::query_scalar::<_, bool>(AssertSqlSafe(sql::has_rows(&from_schema, &table)));
    if !timeout(silence, has_rows.fetch_one(&mut *from)).await.map_err(silent)?? {
        return Ok(0);
    }
    let (source, target) = (sql::copy_out(&from_schema, &table), sql::copy_in(&to_schema, &table));
    let mut read = timeout(silence, from.copy_out_raw(&source)).await.map_err(silent)??;
    let mut written = timeout(silence, to.copy_in_raw(&target)).await.map_err(silent)??;
    while let Some(part) = timeout(silence, read.next()).await.map_err(silent)? {
        // After an error the copy is dropped without its end, and nothing of it is written.
        timeout(silence, written.send(part?)).await.map_err(silent)??;
    }
    Ok(timeout(silence, written.finish()).await.map_err(silent)??)
}

/// Sets the next values of the columns that number rows.
pub(super) async fn identities((from, from_schema): Side<'_>, (to, to_schema): Side<'_>) -> Result<()> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(sql::IDENTITIES_OF_SCHEMA).bind(from_schema).fetch_all(&mut *from).await?;
    for (table, column, sequence) in columns {
        let read = sql::sequence_state(&quoted(from_schema), &quoted(&sequence));
        let (last, is_called): (i64, bool) = sqlx::query_as(AssertSqlSafe(read)).fetch_one(&mut *from).await?;
        let table = format!("{}.{}", quoted(to_schema), quoted(&table));
        to.execute(sqlx::query(sql::SET_IDENTITY).bind(table).bind(column).bind(last).bind(is_called)).await?;
    }
    Ok(())
}

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
type Side<'c> = (&'c mut PgConnection, &'c str);

/// Copies all rows of a table and returns their number. `silence` is the time limit for each part of the data.
pub(super) async fn table((from, from_schema): Side<'_>, (to, to_schema): Side<'_>, table: &str, silence: Duration) -> Result<u64> {
    let silent = |_| StoreError::Deadline(silence);
    let table = quoted(table);
    let has_rows = format!("select exists (select 1 from {}.{table})", quoted(from_schema));
    if !sqlx::query_scalar::<_, bool>(AssertSqlSafe(has_rows)).fetch_one(&mut *from).await? {
        return Ok(0);
    }
    let source = format!("copy {}.{table} to stdout (format binary)", quoted(from_schema));
    let target = format!("copy {}.{table} from stdin (format binary)", quoted(to_schema));
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
        let read = format!("select last_value, is_called from {}.{}", quoted(from_schema), quoted(&sequence));
        let (last, is_called): (i64, bool) = sqlx::query_as(AssertSqlSafe(read)).fetch_one(&mut *from).await?;
        let table = format!("{}.{}", quoted(to_schema), quoted(&table));
        to.execute(sqlx::query(sql::SET_IDENTITY).bind(table).bind(column).bind(last).bind(is_called)).await?;
    }
    Ok(())
}

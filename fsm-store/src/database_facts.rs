//! The database's reports about itself: its settings, damage in its file, and old snapshots.

use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// The names and values of the database's settings that affect durability.
pub async fn settings(conn: &mut Conn<'_>) -> Result<Vec<(String, String)>> {
    let rows = conn.rows(&sql::SETTINGS, &[]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// The damage that SQLite finds in its file. Empty for PostgreSQL, which has no such check. Reads the whole file.
pub async fn file_faults(conn: &mut Conn<'_>) -> Result<Vec<String>> {
    let rows = conn.rows(&sql::FILE_CHECK, &[]).await?;
    let lines = rows.iter().map(|row| row.get::<String>(0)).collect::<Result<Vec<_>>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// The start time of the oldest snapshot of another session. PostgreSQL cannot vacuum rows that died after it. `None` for SQLite.
pub async fn oldest_snapshot(conn: &mut Conn<'_>) -> Result<Option<Timestamp>> {
    let rows = conn.rows(&sql::OLDEST_SNAPSHOT, &[]).await?;
    Ok(rows.first().map(|row| row.time_if_any(0)).transpose()?.flatten())
}

//! The definitions of machines that were ever started.

use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::values;

/// A definition, as a process started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The hash of the definition.
    pub hash: String,
    /// The machine as JSON.
    pub definition: String,
    /// The time at which it was started first.
    pub first_seen_at: Timestamp,
    /// The time at which it was started last.
    pub last_seen_at: Timestamp,
}

/// Stores a definition and the time `now` of its start.
pub async fn remember(conn: &mut Conn<'_>, machine: &str, hash: &str, definition: &str, now: Timestamp) -> Result<()> {
    conn.rows(&sql::REMEMBER, &values![machine, hash, definition, now.as_micros()]).await.map(drop)
}

/// The definitions of a machine, by the time of the last start.
pub async fn definitions(conn: &mut Conn<'_>, machine: &str) -> Result<Vec<Definition>> {
    let rows = conn.rows(&sql::DEFINITIONS, &values![machine]).await?;
    rows.iter().map(|row| definition(row, 0)).collect()
}

/// The definitions of all machines, by machine and then by the time of the last start.
pub async fn all(conn: &mut Conn<'_>) -> Result<Vec<(String, Definition)>> {
    let rows = conn.rows(&sql::MACHINES, &[]).await?;
    rows.iter().map(|row| Ok((row.get(0)?, definition(row, 1)?))).collect()
}

fn definition(row: &Row, at: usize) -> Result<Definition> {
    Ok(Definition { hash: row.get(at)?, definition: row.get(at + 1)?, first_seen_at: row.time(at + 2)?, last_seen_at: row.time(at + 3)? })
}

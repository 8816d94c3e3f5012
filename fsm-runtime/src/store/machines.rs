//! Each definition of a machine that was ever started.

use fsm_core::time::Timestamp;

use super::conn::{Conn, values};
use super::error::Result;
use super::sql;

/// A definition as it was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The hash of it.
    pub hash: String,
    /// The machine as JSON.
    pub definition: String,
    /// When it was first started.
    pub first_seen_at: Timestamp,
}

/// Keeps a definition, unless the machine has it already.
pub async fn remember(conn: &mut Conn<'_>, machine: &str, hash: &str, definition: &str, now: Timestamp) -> Result<()> {
    conn.rows(&sql::REMEMBER, &values![machine, hash, definition, now.as_micros()]).await.map(drop)
}

/// Every definition of a machine, the one first seen first.
pub async fn definitions(conn: &mut Conn<'_>, machine: &str) -> Result<Vec<Definition>> {
    let rows = conn.rows(&sql::DEFINITIONS, &values![machine]).await?;
    rows.iter().map(|row| Ok(Definition { hash: row.get(0)?, definition: row.get(1)?, first_seen_at: row.time(2)? })).collect()
}

/// Every definition of every machine, by machine, the one first seen first.
pub async fn all(conn: &mut Conn<'_>) -> Result<Vec<(String, Definition)>> {
    let rows = conn.rows(&sql::MACHINES, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.get(0)?, Definition { hash: row.get(1)?, definition: row.get(2)?, first_seen_at: row.time(3)? })))
        .collect()
}

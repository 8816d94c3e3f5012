//! The acts of operators in the history.

use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::sql;
use super::values::values;

/// An act of an operator, as the history stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorAct {
    /// The id of the entry. Later entries have larger ids.
    pub id: i64,
    /// The machine.
    pub machine: String,
    /// The key of the instance.
    pub key: String,
    /// The time of the act.
    pub at: Timestamp,
    /// The act: `retried`, `cancelled`, `paused`, `resumed`, `skipped` or `rescheduled`.
    pub kind: String,
    /// The reason.
    pub reason: Option<String>,
    /// The operator's name.
    pub actor: Option<String>,
}

/// The acts of operators before the entry `before`, newest first, at most `limit`, among the 20,000 entries before it.
pub async fn acts(conn: &mut Conn<'_>, before: Option<i64>, limit: u32) -> Result<Vec<OperatorAct>> {
    let rows = conn.rows(&sql::ACTS, &values![before.unwrap_or(i64::MAX), i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            Ok(OperatorAct {
                id: row.get(0)?,
                machine: row.get(1)?,
                key: row.get(2)?,
                at: row.time(3)?,
                kind: row.get(4)?,
                reason: row.get(5)?,
                actor: row.get(6)?,
            })
        })
        .collect()
}

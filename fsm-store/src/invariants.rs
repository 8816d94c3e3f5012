//! The invariants of every database. Each is a query that ships with the crate and returns the rows that break the invariant.

use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// An invariant and the rows that break it. A healthy database has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invariant {
    /// The number, `I1` to `I23`.
    pub number: &'static str,
    /// The condition that holds in a healthy database.
    pub says: &'static str,
    /// The first 100 rows that break it. Each text begins with the id of an instance or a call.
    pub rows: Vec<String>,
    /// The number of further rows that break it.
    pub others: usize,
}

impl Invariant {
    /// True if no row breaks the invariant.
    pub fn holds(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Checks every invariant. Reads whole tables: use it in tests and by hand, not under load.
///
/// Three facts are not in the database, so the queries do not check them: whether an edge from a state to itself is declared (I8), the wait
/// that an error requested (I11), and the sender of a completion (I15).
pub async fn examine(conn: &mut Conn<'_>) -> Result<Vec<Invariant>> {
    let mut examined = Vec::with_capacity(sql::INVARIANTS.len());
    for invariant in &sql::INVARIANTS {
        let found = conn.rows(&invariant.query, &[]).await?;
        let mut rows = Vec::with_capacity(found.len().min(MOST));
        for row in found.iter().take(MOST) {
            rows.push(format!("{} {}", row.get::<Uuid>(0)?, row.get::<String>(1)?));
        }
        examined.push(Invariant { number: invariant.number, says: invariant.says, rows, others: found.len().saturating_sub(MOST) });
    }
    Ok(examined)
}

/// The maximum number of rows that are shown for one invariant.
const MOST: usize = 100;

//! What must hold in every database. The queries are shipped: the rows that one returns break it.

use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// A promise, and the rows that break it: none in a healthy database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invariant {
    /// Its number, `I1` to `I17`.
    pub number: &'static str,
    /// What holds in a healthy database.
    pub says: &'static str,
    /// The first 100 rows that break it, each as a text that begins with an instance's or a call's id.
    pub rows: Vec<String>,
    /// How many more do.
    pub others: usize,
}

impl Invariant {
    /// Whether no row breaks it.
    pub fn holds(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Every invariant with the rows that break it. Reads whole tables: for tests and for the operator, not for a busy moment.
///
/// What the schema cannot tell: whether an edge from a state to itself is declared (I8), which wait an error named for itself (I11), and
/// who made a report (I15).
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

/// The most rows shown of one invariant.
const MOST: usize = 100;

//! What must hold in every database. The queries are shipped: rows that one returns are violations.

use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// A promise that the rows break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its number, `I1` to `I16`.
    pub invariant: &'static str,
    /// What holds in a healthy database.
    pub says: &'static str,
    /// The rows that break it, each as a text.
    pub rows: Vec<String>,
}

/// Every invariant that does not hold, with at most 100 rows each. Reads whole tables: for tests and for the operator, not for a busy moment.
///
/// What the schema cannot tell: whether an edge from a state to itself is declared (I8), which wait an error named for itself (I11), and
/// who made a report (I15).
pub async fn violations(conn: &mut Conn<'_>) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for invariant in &sql::INVARIANTS {
        let found = conn.rows(&invariant.query, &[]).await?;
        if found.is_empty() {
            continue;
        }
        let mut rows = Vec::with_capacity(found.len().min(MOST));
        for row in found.iter().take(MOST) {
            rows.push(format!("{} {}", row.get::<Uuid>(0)?, row.get::<String>(1)?));
        }
        violations.push(Violation { invariant: invariant.number, says: invariant.says, rows });
    }
    Ok(violations)
}

/// The most rows shown of one invariant.
const MOST: usize = 100;

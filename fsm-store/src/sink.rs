//! The destination of statements about many rows: a connection, or statements that are collected for one round trip.

use super::conn::Conn;
use super::error::Result;
#[cfg(feature = "postgres")]
use super::postgres::combined::CombinedStatement;
use super::sql::Many;
#[cfg(feature = "sqlite")]
use super::sqlite::thread::Whole;
use super::values::Batch;

/// The destination of statements about many rows.
pub(super) enum Sink<'s, 'c> {
    /// Runs each statement at once.
    Now(&'s mut Conn<'c>),
    /// Combines all statements into one. Statements without rows are left out.
    #[cfg(feature = "postgres")]
    CombinedStatement(&'s mut CombinedStatement),
    /// Collects the statements for one transaction of the SQLite thread.
    #[cfg(feature = "sqlite")]
    Whole(&'s mut Whole),
}

impl Sink<'_, '_> {
    /// True for PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        match self {
            Sink::Now(conn) => conn.is_postgres(),
            #[cfg(feature = "postgres")]
            Sink::CombinedStatement(_) => true,
            #[cfg(feature = "sqlite")]
            Sink::Whole(_) => false,
        }
    }

    /// Adds a statement whose rows do not belong to single instances. The condition of the combined statement does not apply to it.
    pub(super) async fn put_whole<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            #[cfg(feature = "postgres")]
            Sink::CombinedStatement(combined) => combined.put_whole(sql, batch),
            sink => sink.put(sql, batch).await,
        }
    }

    /// Adds a statement whose answer is not needed.
    pub(super) async fn put<const WIDTH: usize>(&mut self, sql: &Many, batch: Batch<'_, WIDTH>) -> Result<()> {
        match self {
            Sink::Now(conn) => conn.put(sql, batch).await,
            #[cfg(feature = "postgres")]
            Sink::CombinedStatement(combined) => combined.put(sql, batch),
            #[cfg(feature = "sqlite")]
            Sink::Whole(whole) => {
                whole.put(sql, &batch);
                Ok(())
            }
        }
    }
}

//! The settings for statements that only PostgreSQL has.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::location::{Host, Location};

/// A statement that takes longer than this is waited for only while its server answers new connections. The socket does not show that the
/// machine at the other end is gone, because the driver does not set TCP keepalive.
const QUIET: Duration = Duration::from_secs(1);

/// The settings for statements on PostgreSQL.
#[derive(Debug, Clone)]
pub(crate) struct PostgresSettings {
    /// True if prepared statements are cached. If false (PgBouncer), each statement outside a transaction gets a transaction of its own.
    pub is_cached: bool,
    /// The servers of the database. The connection goes to one of them.
    pub location: Option<Arc<Location>>,
}

impl PostgresSettings {
    pub(crate) const DEFAULT: PostgresSettings = PostgresSettings { is_cached: true, location: None };

    /// The servers, if an operation with this deadline is waited for only while its server is there.
    pub(crate) fn watched(&self, deadline: Duration) -> Option<&Location> {
        self.location.as_deref().filter(|_| deadline > QUIET)
    }

    /// The error of a statement, also where the tables are missing because the partition was moved.
    pub(crate) fn explained(&self, error: sqlx::Error) -> sqlx::Error {
        match &self.location {
            Some(location) => location.explained(error),
            None => error,
        }
    }
}

impl Location {
    /// Waits for an operation on a connection to this host, which can vanish. `None` if the deadline has passed.
    pub(crate) async fn while_there<T>(
        &self,
        host: Host,
        deadline: Duration,
        operation: impl Future<Output = sqlx::Result<T>>,
    ) -> Option<sqlx::Result<T>> {
        let mut operation = pin!(operation);
        if let Ok(done) = timeout(QUIET, &mut operation).await {
            return Some(done);
        }
        tokio::select! {
            done = timeout(deadline - QUIET, operation) => done.ok(),
            gone = self.gone(host) => Some(Err(gone)),
        }
    }
}

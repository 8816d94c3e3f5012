//! The settings for statements that only PostgreSQL has.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::servers::Servers;

/// A statement that takes longer than this is waited for only while its server answers new connections. The socket does not show that the
/// machine at the other end is gone, because the driver does not set TCP keepalive.
const QUIET: Duration = Duration::from_secs(1);

/// The settings for statements on PostgreSQL.
#[derive(Debug, Clone)]
pub(in crate::store) struct PostgresSettings {
    /// True if prepared statements are cached. If false (PgBouncer), each statement outside a transaction gets a transaction of its own.
    pub is_cached: bool,
    /// The servers of the URL. The connection goes to one of them.
    pub servers: Option<Arc<Servers>>,
}

impl PostgresSettings {
    pub(in crate::store) const DEFAULT: PostgresSettings = PostgresSettings { is_cached: true, servers: None };

    /// Waits for an operation on a connection to this host. Stops with an error once the host is gone. `deadline` is the caller's limit.
    pub(in crate::store) async fn while_there<T>(
        &self,
        deadline: Duration,
        host: usize,
        operation: impl Future<Output = sqlx::Result<T>>,
    ) -> sqlx::Result<T> {
        let Some(servers) = self.servers.as_ref().filter(|_| deadline > QUIET) else { return operation.await };
        let mut operation = pin!(operation);
        if let Ok(done) = timeout(QUIET, &mut operation).await {
            return done;
        }
        tokio::select! {
            done = operation => done,
            gone = servers.gone(host) => Err(gone),
        }
    }
}

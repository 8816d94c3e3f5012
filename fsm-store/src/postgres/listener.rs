//! Listening for the notifications of other processes on PostgreSQL.

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::time::timeout;

use super::pool::PostgresPool;
use super::shared_listener::{Subscription, lost};
use crate::error::{Result, StoreError};
use crate::guarded::StatementSettings;

/// Listens for one database or partition, on a connection that all partitions of its server share.
pub(crate) struct PostgresListener {
    subscription: Subscription,
    /// Changes when the partition is moved.
    moves: watch::Receiver<u64>,
}

impl PostgresPool {
    /// Listens. `None` behind a pooler, where a `listen` may be lost, or may occupy a server connection permanently.
    pub(crate) async fn listen(&self, statement_settings: &StatementSettings) -> Result<Option<PostgresListener>> {
        if !self.is_direct {
            return Ok(None);
        }
        let limit = self.location.connect_timeout().min(statement_settings.deadline);
        // Read first: a partition that is moved from now on listens again.
        let moves = self.location.moves();
        let server = self.location.server();
        let open = async {
            // The driver's listener knows only one server. If that one is lost, another may fit, so the listener must not reconnect by
            // itself.
            let options = self.location.choose().await?;
            if self.location.server() != server {
                return Err(lost().into());
            }
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(limit).connect_lazy_with(options);
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.eager_reconnect(false);
            Ok(listener)
        };
        let subscribed = timeout(limit, self.listening.subscribe(&server, &self.channel, open)).await;
        let subscription = subscribed.map_err(|_| StoreError::Deadline(limit))??;
        Ok(Some(PostgresListener { subscription, moves }))
    }
}

impl PostgresListener {
    /// Waits for the next notification.
    pub(crate) async fn next_notification(&mut self) -> Result<()> {
        tokio::select! {
            notified = self.subscription.next_notification() => notified,
            _ = self.moves.changed() => Err(lost().into()),
        }
    }
}

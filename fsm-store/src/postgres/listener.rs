//! Listening for the notifications of other processes on PostgreSQL.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio::time::timeout;

use super::pool::PostgresPool;
use crate::error::Result;
use crate::guarded::{StatementSettings, within};

/// A connection that was silent for this long is pinged: the machine at its other end may have vanished.
const SILENCE: Duration = Duration::from_secs(5);
/// The time limit of that ping.
const ANSWER: Duration = Duration::from_secs(2);

/// A connection that listens.
pub(crate) struct PostgresListener {
    /// Boxed because it is large.
    listener: Box<PgListener>,
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
        // The driver's listener knows only one server. If that one is lost, another may fit, so the listener must not reconnect by
        // itself.
        let moves = self.location.moves();
        let options = within(limit, self.location.choose()).await?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(limit).connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        within(limit, listener.listen(&self.channel)).await?;
        Ok(Some(PostgresListener { listener: Box::new(listener), moves }))
    }
}

impl PostgresListener {
    /// Waits for the next notification.
    pub(crate) async fn next_notification(&mut self) -> Result<()> {
        let PostgresListener { listener, moves } = self;
        let lost = || sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into());
        loop {
            let received = tokio::select! {
                received = timeout(SILENCE, listener.try_recv()) => received,
                _ = moves.changed() => return Err(lost().into()),
            };
            match received {
                Ok(Ok(Some(_))) => return Ok(()),
                Ok(Ok(None)) => return Err(lost().into()),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => within(ANSWER, listener.execute("select 1")).await.map(drop)?,
            }
        }
    }
}

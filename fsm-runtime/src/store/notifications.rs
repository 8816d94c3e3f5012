//! Notifications between processes that the database has something new. Polling finds the work if one is lost.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::time::timeout;

use super::error::Result;
use super::guarded::within;
use super::open::{Listening, Store};
use super::sql;
use super::tx::DedicatedConnection;
use super::values::Value;

/// The PostgreSQL channel of the notifications.
pub(super) const CHANNEL: &str = "fsm_due";
/// The interval at which a file is checked for other processes' writes. The check reads shared memory, not the file.
const GLANCES: Duration = Duration::from_millis(20);

/// A connection that was silent for this long is pinged: the machine at its other end may have vanished.
const SILENCE: Duration = Duration::from_secs(5);
/// The time limit of that ping.
const ANSWER: Duration = Duration::from_secs(2);

/// A listener for the notifications of other processes, on a connection of its own.
pub struct NotificationListener {
    kind: Kind,
}

enum Kind {
    /// Boxed because it is large, like the connection of the other variant.
    Postgres(Box<PgListener>),
    Sqlite {
        conn: Box<DedicatedConnection>,
        version: i64,
    },
}

impl Store {
    /// Listens. `None` if no other process can write, or if a connection does not keep its server session (PgBouncer).
    pub async fn listen(&self) -> Result<Option<NotificationListener>> {
        let kind = match self.listening() {
            Listening::Never => return Ok(None),
            Listening::Glances => {
                let mut conn = Box::new(self.dedicated().await?);
                let version = version(&mut conn).await?;
                Kind::Sqlite { conn, version }
            }
            Listening::Channel(servers) => {
                let limit = servers.connect_timeout().min(self.deadline());
                // The driver's listener knows only one server. If that one is lost, another may fit, so the listener must not reconnect by
                // itself.
                let options = within(limit, servers.choose()).await?;
                let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(limit).connect_lazy_with(options);
                let mut listener = PgListener::connect_with(&pool).await?;
                listener.eager_reconnect(false);
                within(limit, listener.listen(CHANNEL)).await?;
                Kind::Postgres(Box::new(listener))
            }
        };
        Ok(Some(NotificationListener { kind }))
    }

    /// Notifies every process that listens. SQLite needs no notification: a commit changes the file's change counter.
    pub async fn notify(&self) -> Result<()> {
        if self.is_postgres() {
            self.reader().await?.conn().rows(&sql::NOTIFY, &[Value::from(CHANNEL)]).await?;
        }
        Ok(())
    }
}

impl NotificationListener {
    /// Waits for the next notification, which may come from this process. Returns an error if the connection is lost: notifications may
    /// have been missed, and a new listener is needed.
    pub async fn next_notification(&mut self) -> Result<()> {
        match &mut self.kind {
            Kind::Postgres(listener) => loop {
                match timeout(SILENCE, listener.try_recv()).await {
                    Ok(Ok(Some(_))) => return Ok(()),
                    Ok(Ok(None)) => return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into()).into()),
                    Ok(Err(error)) => return Err(error.into()),
                    Err(_) => within(ANSWER, listener.execute("select 1")).await.map(drop)?,
                }
            },
            Kind::Sqlite { conn, version: seen } => loop {
                tokio::time::sleep(GLANCES).await;
                let now = version(conn).await?;
                if std::mem::replace(seen, now) != now {
                    return Ok(());
                }
            },
        }
    }
}

/// A number that changes with each commit of another connection.
async fn version(conn: &mut DedicatedConnection) -> Result<i64> {
    let rows = conn.conn().rows(&sql::DATA_VERSION, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.get(0))
}

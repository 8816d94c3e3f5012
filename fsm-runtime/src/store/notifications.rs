//! Word between processes that the database has something new. It is a hint: who misses it looks now and then.

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

/// The channel of PostgreSQL on which word is given.
pub(super) const CHANNEL: &str = "fsm_due";
/// How often a file is asked whether somebody wrote to it. An answer comes from shared memory, without reading the file.
const GLANCES: Duration = Duration::from_millis(20);

/// A connection on which nothing was heard for this long is asked whether it is still there: the machine at its other end may have vanished.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the answer to that may take.
const ANSWER: Duration = Duration::from_secs(2);

/// An ear for the word of other processes, on a connection of its own.
pub struct NotificationListener {
    kind: Kind,
}

enum Kind {
    /// Boxed, as the other, being large.
    Postgres(Box<PgListener>),
    Sqlite {
        conn: Box<DedicatedConnection>,
        version: i64,
    },
}

impl Store {
    /// Listens. `None` where nobody else can write, or where a connection is not one's own for long (PgBouncer).
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
                // The driver's listener knows one server only. When that is lost another one may fit, so it must not connect again by itself.
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

    /// Gives word to every process that listens. SQLite needs none: a commit itself can be seen.
    pub async fn notify(&self) -> Result<()> {
        if self.is_postgres() {
            self.reader().await?.conn().rows(&sql::NOTIFY, &[Value::from(CHANNEL)]).await?;
        }
        Ok(())
    }
}

impl NotificationListener {
    /// Waits until somebody gives word, this process included. An error when the connection was lost: some may have been missed, and only a
    /// new ear hears more.
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

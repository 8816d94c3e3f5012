//! Notifications between processes that the database has something new. Polling finds the work if one is lost.

use super::error::Result;
use super::open::{Pools, Store};
#[cfg(feature = "postgres")]
use super::postgres::listener::PostgresListener;
#[cfg(feature = "postgres")]
use super::sql;
#[cfg(feature = "sqlite")]
use super::sqlite::listener::SqliteListener;
#[cfg(feature = "postgres")]
use super::values::Value;

/// A listener for the notifications of other processes, on a connection of its own.
pub struct NotificationListener {
    kind: Kind,
}

enum Kind {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteListener),
    #[cfg(feature = "postgres")]
    Postgres(PostgresListener),
}

impl Store {
    /// Listens. `None` if no other process can write, or if a connection does not keep its server session (PgBouncer).
    pub async fn listen(&self) -> Result<Option<NotificationListener>> {
        let kind = match self.pools() {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(pools) => pools.listen(self.statement_settings()).await?.map(Kind::Sqlite),
            #[cfg(feature = "postgres")]
            Pools::Postgres(pool) => pool.listen(self.statement_settings()).await?.map(Kind::Postgres),
        };
        Ok(kind.map(|kind| NotificationListener { kind }))
    }

    /// Notifies every process that listens. SQLite needs no notification: a commit changes the file's change counter.
    pub async fn notify(&self) -> Result<()> {
        match self.pools() {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Pools::Postgres(pool) => {
                let channel = Value::from(pool.channel.as_str());
                self.reader().await?.conn().rows(&sql::NOTIFY, &[channel]).await.map(drop)
            }
        }
    }
}

impl NotificationListener {
    /// Waits for the next notification, which may come from this process. Returns an error if the connection is lost: notifications may
    /// have been missed, and a new listener is needed.
    pub async fn next_notification(&mut self) -> Result<()> {
        match &mut self.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(listener) => listener.next_notification().await,
            #[cfg(feature = "postgres")]
            Kind::Postgres(listener) => listener.next_notification().await,
        }
    }
}

//! A connection that the partitions of one server use by turns, for statements that commit by themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Result, StoreError};
use super::open::{Pools, Store};
use super::partition_place::SharedPlace;
use super::sql;
use super::tx::DedicatedConnection;
use super::values::values;

/// A connection outside every pool to a server with several partitions. It belongs to the tokio runtime that made it.
pub struct SharedConnection {
    connection: DedicatedConnection,
    server: Arc<str>,
    /// The longest wait for a lock, in milliseconds.
    lock_limit_ms: String,
    /// The schemas that were found to be the right ones, with their place numbers.
    checked: HashMap<String, i64>,
}

impl Store {
    /// The server of this partition: those with equal ones can share connections. `None` without partitions, and behind a pooler, where a
    /// setting of the session would affect other clients.
    pub fn server(&self) -> Option<Arc<str>> {
        self.shared_place().map(|place| place.server)
    }

    fn shared_place(&self) -> Option<SharedPlace> {
        match self.pools() {
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(_) => None,
            #[cfg(feature = "postgres")]
            Pools::Postgres(pool) => pool.location.shared_place().filter(|_| pool.is_direct),
        }
    }

    /// Makes a connection to the server of this partition for all partitions there. A statement on it waits at most `lock_limit` for a lock, so
    /// that a partition that hangs delays the others only so long.
    pub async fn shared(&self, lock_limit: Duration) -> Result<SharedConnection> {
        let connection = self.dedicated().await?;
        let server = self.server().ok_or_else(not_here)?;
        let lock_limit_ms = lock_limit.as_millis().clamp(1, i32::MAX as u128).to_string();
        Ok(SharedConnection { connection, server, lock_limit_ms, checked: HashMap::new() })
    }
}

impl SharedConnection {
    /// The connection, for statements in the schema of this partition. An error if the partition is not there: it was moved, or is being
    /// moved. The connection is not used again after any error.
    pub async fn of(&mut self, store: &Store) -> Result<&mut DedicatedConnection> {
        let place = store.shared_place().filter(|place| place.server == self.server).ok_or_else(not_here)?;
        self.connection.statement_settings = store.statement_settings().unwatched();
        let mut conn = self.connection.conn();
        conn.rows(&sql::ENTER_SCHEMA, &values![place.search_path.as_str(), self.lock_limit_ms.as_str()]).await?;
        if self.checked.get(&place.search_path) != Some(&place.itself.2) {
            let rows = conn.rows(&sql::PARTITION, &[]).await?;
            let itself = rows.first().map(|row| Ok::<_, StoreError>((row.get(0)?, row.get(1)?, row.get(2)?))).transpose()?;
            if itself != Some(place.itself) {
                return Err(not_here());
            }
            self.checked.insert(place.search_path, place.itself.2);
        }
        Ok(&mut self.connection)
    }
}

/// The error if the partition is not at this server. A connection of its own finds it.
fn not_here() -> StoreError {
    let says = "the partition is not at this server any more";
    StoreError::Database(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, says)))
}

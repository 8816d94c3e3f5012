//! Transactions that only read: a snapshot of all rows at one moment, and the examination of whole tables.

use std::time::Duration;

use super::{Kind, Store};
use crate::store::error::{Result, StoreError};
use crate::store::guarded::StatementSettings;
use crate::store::shares::Purpose;
use crate::store::tx::{Side, Tx};
use crate::store::values::values;
use crate::store::{held, postgres, sql, sqlite};

/// The time limit of a statement that reads whole tables.
const EXAMINED_WITHIN: Duration = Duration::from_secs(600);

impl Store {
    /// Begins a transaction that reads one snapshot of the database, however long it takes. SQLite permits no writes in it.
    pub async fn snapshot(&self) -> Result<Tx> {
        let side = match &self.inner.kind {
            Kind::Sqlite { readers, .. } => self
                .begun(readers.take(Purpose::Long).await?, async |conn| sqlite::begin(conn, sql::SNAPSHOT_SQLITE).await)
                .await
                .map(Side::Sqlite),
            Kind::Postgres { pool, .. } => {
                let taken = self.set(pool.take_rather(Purpose::Long, false).await?, false).await?;
                self.begun(taken, async |conn| postgres::words(conn, sql::SNAPSHOT_POSTGRES).await).await.map(Side::Postgres)
            }
        };
        Ok(Tx { _turn: None, side: side?, statement_settings: self.inner.statement_settings.clone() })
    }

    /// Begins a read-only transaction for statements that read whole tables. The limit of each is ten minutes, or the deadline if that is
    /// longer. PostgreSQL plans each statement for the present size of the tables, and ends it at the limit even if the client has gone.
    pub async fn examination(&self) -> Result<Tx> {
        let side = match &self.inner.kind {
            Kind::Sqlite { turns: None, .. } if held::has_writer(self.id()) => return Err(StoreError::Crosswise),
            Kind::Sqlite { readers, .. } => self
                .begun(readers.take(Purpose::Short).await?, async |conn| sqlite::begin(conn, sql::SNAPSHOT_SQLITE).await)
                .await
                .map(Side::Sqlite),
            Kind::Postgres { pool, .. } => {
                let taken = self.set(pool.take_rather(Purpose::Short, false).await?, false).await?;
                self.begun(taken, async |conn| postgres::words(conn, sql::EXAMINE_POSTGRES).await).await.map(Side::Postgres)
            }
        };
        let deadline = self.inner.statement_settings.deadline.max(EXAMINED_WITHIN);
        let mut tx =
            Tx { _turn: None, side: side?, statement_settings: StatementSettings { deadline, ..self.inner.statement_settings.clone() } };
        let limit_ms = deadline.as_millis().clamp(1, i32::MAX as u128).to_string();
        tx.conn().rows(&sql::LIMIT_STATEMENTS, &values![limit_ms.as_str()]).await?;
        Ok(tx)
    }
}

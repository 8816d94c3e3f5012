//! Learning of other processes' commits to a SQLite file: the file's change counter is polled.

use std::time::Duration;

use super::pools::SqlitePools;
use crate::error::Result;
use crate::guarded::StatementSettings;
use crate::sql;
use crate::tx::DedicatedConnection;

/// The interval at which a file is checked for other processes' writes. The check reads shared memory, not the file.
const GLANCES: Duration = Duration::from_millis(20);

/// A connection that is asked for the change counter.
pub(crate) struct SqliteListener {
    conn: Box<DedicatedConnection>,
    version: i64,
}

impl SqlitePools {
    /// Listens. `None` for a database in memory, to which no other process can write.
    pub(crate) async fn listen(&self, statement_settings: &StatementSettings) -> Result<Option<SqliteListener>> {
        if self.anchor.is_some() {
            return Ok(None);
        }
        let (side, statement_settings) = (self.dedicated().await?, statement_settings.clone());
        let mut conn = Box::new(DedicatedConnection { side, statement_settings });
        let version = version(&mut conn).await?;
        Ok(Some(SqliteListener { conn, version }))
    }
}

impl SqliteListener {
    /// Waits for a commit of another connection.
    pub(crate) async fn next_notification(&mut self) -> Result<()> {
        loop {
            tokio::time::sleep(GLANCES).await;
            let now = version(&mut self.conn).await?;
            if std::mem::replace(&mut self.version, now) != now {
                return Ok(());
            }
        }
    }
}

/// A number that changes with each commit of another connection.
async fn version(conn: &mut DedicatedConnection) -> Result<i64> {
    let rows = conn.conn().rows(&sql::DATA_VERSION, &[]).await?;
    rows.first().map_or(Ok(0), |row| row.get(0))
}

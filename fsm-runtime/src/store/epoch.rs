//! Whether somebody else wrote to a SQLite file since it was looked at: if nobody did, what was seen before the writer's turn came is still so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// A time in which nobody but the committer of this process writes to a file. Two looks at the file in the same epoch differ by what the
/// committer wrote, and in nothing else that a decision is made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    /// The writer's connection: another one counts from elsewhere.
    connection: u64,
    /// The number that another connection's commit changes.
    data_version: i64,
    /// How many transactions of this process that are not the committer's ended on the writer's connection.
    others: u64,
}

/// The epochs of one file, as this process learns of them.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    others: Arc<AtomicU64>,
    last: Mutex<Option<Epoch>>,
}

/// A transaction of this process that is not the committer's. Its end, however it ends, begins another epoch; it is dropped before the
/// next writer's turn comes.
#[derive(Debug)]
pub(super) struct Other(Arc<AtomicU64>);

impl Epochs {
    /// The epoch that was the last when the committer last had its turn.
    pub(super) fn last(&self) -> Option<Epoch> {
        *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The epoch of the transaction that is open on the writer's connection.
    pub(super) async fn now(&self, connection: u64, conn: &mut Conn<'_>) -> Result<Option<Epoch>> {
        let rows = conn.rows(&sql::DATA_VERSION, &[]).await?;
        let data_version = rows.first().map(|row| row.get(0)).transpose()?;
        let others = self.others.load(Ordering::Acquire);
        let now = data_version.map(|data_version| Epoch { connection, data_version, others });
        *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = now;
        Ok(now)
    }

    pub(super) fn other(&self) -> Other {
        Other(Arc::clone(&self.others))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

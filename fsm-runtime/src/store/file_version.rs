//! File versions of SQLite: they show whether anybody but the committer wrote to the file since it was read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// A version of a SQLite file. While it is unchanged, no other writer has changed rows that decisions depend on, so that two reads differ
/// only by this committer's own writes. A claim does not change it, because no decision depends on the columns that a claim writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The id of the writer's connection. `data_version` is only comparable on the same connection.
    pub(super) connection: u64,
    /// SQLite's `data_version`, which changes when another connection commits.
    pub(super) data_version: i64,
    /// The number of transactions on the writer's connection that were not the committer's. Claims are not counted.
    pub(super) others: u64,
}

/// The file versions that one committer has seen.
#[derive(Debug, Default)]
pub struct FileVersions {
    /// The number of ended transactions that were its own.
    own: Arc<AtomicU64>,
    last: Mutex<Last>,
}

/// The file version of the committer's last transactions.
#[derive(Debug, Default)]
struct Last {
    file_version: Option<FileVersion>,
    /// True if the transaction before had the same file version.
    has_lasted: bool,
}

/// The number of ended transactions on the writer's connection.
#[derive(Debug, Default)]
pub(super) struct Turns(Arc<AtomicU64>);

/// A transaction on the writer's connection. It is counted when this value is dropped, which is before the next transaction begins.
#[derive(Debug)]
pub(super) struct Turn {
    all: Arc<AtomicU64>,
    own: Option<Arc<AtomicU64>>,
}

impl FileVersions {
    /// The file version of the committer's last two transactions. A read from now on sees this version or a later one. `None` if others
    /// wrote between the two: they will probably write again.
    pub fn lasting(&self) -> Option<FileVersion> {
        let last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        last.file_version.filter(|_| last.has_lasted)
    }

    /// The number of ended transactions that were not its own. Must be called during a transaction.
    pub(super) fn others(&self, turns: &Turns) -> u64 {
        // Neither number changes during a transaction.
        turns.0.load(Ordering::Acquire) - self.own.load(Ordering::Acquire)
    }

    /// The file version in the committer's current transaction.
    pub(super) async fn now(&self, turns: &Turns, connection: u64, conn: &mut Conn<'_>) -> Result<Option<FileVersion>> {
        let rows = conn.rows(&sql::DATA_VERSION, &[]).await?;
        let data_version = rows.first().map(|row| row.get(0)).transpose()?;
        let others = self.others(turns);
        let now = data_version.map(|data_version| FileVersion { connection, data_version, others });
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *last = Last { file_version: now, has_lasted: last.file_version == now };
        Ok(now)
    }
}

impl Turns {
    /// Begins a transaction, of this committer or of another caller (`None`).
    pub(super) fn begin(&self, committer: Option<&FileVersions>) -> Turn {
        Turn { all: Arc::clone(&self.0), own: committer.map(|file_versions| Arc::clone(&file_versions.own)) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.fetch_add(1, Ordering::Release);
        if let Some(own) = &self.own {
            own.fetch_add(1, Ordering::Release);
        }
    }
}

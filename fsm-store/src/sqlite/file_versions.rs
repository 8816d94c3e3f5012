//! The file versions that a committer sees, and the transactions that are counted for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fsm_core::commit::rows::FileVersion;

use crate::conn::Conn;
use crate::error::Result;
use crate::sql;

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
pub(crate) struct Turns(Arc<AtomicU64>);

/// A transaction on the writer's connection. It is counted when this value is dropped, which is before the next transaction begins.
#[derive(Debug)]
pub(crate) struct Turn {
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
    pub(crate) fn others(&self, turns: &Turns) -> u64 {
        // Neither number changes during a transaction.
        turns.0.load(Ordering::Acquire) - self.own.load(Ordering::Acquire)
    }

    /// The file version in the committer's current transaction.
    pub(crate) async fn now(&self, turns: &Turns, connection: u64, conn: &mut Conn<'_>) -> Result<Option<FileVersion>> {
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
    pub(crate) fn begin(&self, committer: Option<&FileVersions>) -> Turn {
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

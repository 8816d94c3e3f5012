//! Whether somebody else wrote to a SQLite file since it was looked at: if nobody did, what was seen before the writer's turn came is still so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::conn::Conn;
use super::error::Result;
use super::sql;

/// A time in which nobody but one committer writes to a file. Two looks at the file in the same epoch differ by what that committer wrote,
/// and in nothing else that a decision is made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The writer's connection: another one counts from elsewhere.
    pub(super) connection: u64,
    /// The number that another connection's commit changes.
    pub(super) data_version: i64,
    /// How many turns on the writer's connection were not the committer's.
    pub(super) others: u64,
}

/// The epochs of one committer, as it learns of them.
#[derive(Debug, Default)]
pub struct FileVersions {
    /// How many of the ended turns were its own.
    own: Arc<AtomicU64>,
    last: Mutex<Last>,
}

/// What the committer knows from its last turns.
#[derive(Debug, Default)]
struct Last {
    file_version: Option<FileVersion>,
    /// The turn before was in the same one.
    has_lasted: bool,
}

/// How many turns on a writer's connection have ended.
#[derive(Debug, Default)]
pub(super) struct Turns(Arc<AtomicU64>);

/// A turn. Counted when it ends, however it ends, and before the next one comes.
#[derive(Debug)]
pub(super) struct Turn {
    all: Arc<AtomicU64>,
    own: Option<Arc<AtomicU64>>,
}

impl FileVersions {
    /// The epoch of the committer's last turns. What is seen from now on is of no earlier one. `None` where others wrote in between: they
    /// will again.
    pub fn lasting(&self) -> Option<FileVersion> {
        let last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        last.file_version.filter(|_| last.has_lasted)
    }

    /// How many of the ended turns were not its own, asked in a turn.
    pub(super) fn others(&self, turns: &Turns) -> u64 {
        // Both stand still during a turn.
        turns.0.load(Ordering::Acquire) - self.own.load(Ordering::Acquire)
    }

    /// The epoch of the turn that the committer has now.
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
    /// One begins, of that committer or of somebody else.
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

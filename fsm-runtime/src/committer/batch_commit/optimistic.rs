//! The trip of a batch of plain requests: decided without a lock, and written in one trip or not at all.

use std::borrow::Cow;

use fsm_core::changes::Changes;
use fsm_core::decide::inbox::NeedsMoreRows;
use fsm_core::instance::Instance;

use super::{BatchCommit, Decided};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::Request;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::write::{RowVersion, Written, fits, payload, write_as_script, write_single_statement};

/// What was decided before the writer's turn came, and counts if the epoch in which it was seen still lasts then.
pub(crate) struct Speculation {
    pub(crate) file_version: FileVersion,
    batch_snapshot: BatchSnapshot,
    decided: Vec<Decided>,
}

impl BatchCommit<'_> {
    /// Reads and decides a batch without a lock, and without a look where it `remembers`, and writes and commits it by one statement of
    /// PostgreSQL's. `None` when that cannot be, somebody else was faster, or what was remembered is not true any more: nothing is written then.
    pub(crate) async fn single_statement(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        remembers: bool,
    ) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        let mut batch_snapshot = BatchSnapshot::see(conn, batch, self.now, None, remembers).await?;
        let Ok(decided) = self.decide_all(&batch_snapshot, batch) else { return Ok(None) };
        // Nothing that is written guards a refusal, and what stands beside a row may be gone that was there when that was read.
        if decided.iter().any(|decided| matches!(decided.reply, Some(Err(_)))) {
            return Ok(None);
        }
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        if !changes.iter().all(|changes| fits(changes)) {
            return Ok(None);
        }
        let written = all_written(&changes);
        let xmin = if changes.is_empty() {
            None
        } else {
            let stamped: Vec<_> = changes.iter().map(|changes| (*changes, batch_snapshot.row_version(changes.instance.id))).collect();
            let Some(xmin) = write_single_statement(conn, &stamped).await? else { return Ok(None) };
            Some(xmin)
        };
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        if let Some(xmin) = xmin {
            row_version(&mut commit_outcomes, |instance| RowVersion::Row { xmin, updated_at: instance.updated_at });
        }
        Ok(Some(commit_outcomes))
    }

    /// What a batch comes to, seen in that epoch of a SQLite file before the writer's turn has come. `None` when more has to be read.
    pub(crate) async fn speculation(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        file_version: FileVersion,
    ) -> Result<Option<Speculation>, StoreError> {
        let batch_snapshot = BatchSnapshot::see(conn, batch, self.now, Some(file_version), true).await?;
        Ok(self.decide_all(&batch_snapshot, batch).ok().map(|decided| Speculation { file_version, batch_snapshot, decided }))
    }

    fn decide_all(&self, batch_snapshot: &BatchSnapshot, batch: &[Request]) -> Result<Vec<Decided>, NeedsMoreRows> {
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            decided.push(self.decide(batch_snapshot, request)?);
        }
        Ok(decided)
    }

    /// Writes and commits what was decided ahead, if it needs nothing more from the database. `None` when something is no longer as it was
    /// seen, or the session as certain: nothing is written then.
    pub(crate) async fn commit_speculation(
        &self,
        batch: &[Request],
        speculation: Speculation,
    ) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        let engine = self.engine;
        if !write_as_script(&engine.store, &engine.file_versions, file_version, &changes, self.still_may_grant()).await? {
            return Ok(None);
        }
        let written = all_written(&changes);
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        row_version(&mut commit_outcomes, |_| RowVersion::FileVersion(file_version));
        Ok(Some(commit_outcomes))
    }

    /// Writes what was decided ahead. The transaction is of the same epoch.
    pub(crate) async fn write_speculation(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        speculation: Speculation,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let mut commit_outcomes = self.write(conn, &mut batch_snapshot, batch.iter().map(|request| &request.target), decided).await?;
        row_version(&mut commit_outcomes, |_| RowVersion::FileVersion(file_version));
        Ok(commit_outcomes)
    }
}

impl Speculation {
    /// Whether all of it can be written without another look.
    pub(crate) fn fits(&self) -> bool {
        self.decided.iter().filter_map(|decided| decided.changes.as_ref()).all(fits)
    }
}

/// What became of changes that [`fits`] and are all written.
fn all_written(changes: &[&Changes]) -> Vec<Written> {
    changes.iter().map(|changes| Written::Done { payload: payload(changes).map(Cow::into_owned) }).collect()
}

/// What will show of each instance that it is still as this commit left it.
fn row_version(commit_outcomes: &mut [CommitOutcome], row_version: impl Fn(&Instance) -> RowVersion) {
    for moved in commit_outcomes.iter_mut().flat_map(|commit_outcome| &mut commit_outcome.moved) {
        moved.row_version = Some(row_version(&moved.instance));
    }
}

//! A batch of plain requests under optimistic concurrency control: decided without a lock, and written only if nothing has changed.

use std::borrow::Cow;

use fsm_core::changes::Changes;
use fsm_core::decide::inbox::NeedsMoreRows;

use super::{BatchCommit, Decided};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::Request;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::write::{RowVersion, Written, fits, payload, write_as_script, write_single_statement};

/// A speculative decision. It is written only if the file version is still the one at which it was made.
pub(crate) struct Speculation {
    pub(crate) file_version: FileVersion,
    batch_snapshot: BatchSnapshot,
    decided: Vec<Decided>,
}

impl BatchCommit<'_> {
    /// Reads, decides, writes and commits a batch with one statement of PostgreSQL and without locks. With `uses_cache` it uses cached
    /// snapshots instead of reading the rows. A decision on a row that has changed is not written; its request is decided again. Returns
    /// `None` if the batch needs locks; nothing is written then.
    pub(crate) async fn single_statement(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        uses_cache: bool,
    ) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        let mut batch_snapshot = BatchSnapshot::see(conn, batch, self.now, None, uses_cache).await?;
        let Ok(decided) = self.decide_all(&batch_snapshot, batch) else { return Ok(None) };
        // No row version guards a refusal, and rows of other tables may have changed between the reads. Refusals are decided under locks.
        if decided.iter().any(|decided| matches!(decided.reply, Some(Err(_)))) {
            return Ok(None);
        }
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        if !changes.iter().all(|changes| fits(changes)) {
            return Ok(None);
        }
        let good = if changes.is_empty() { None } else { Some(write_single_statement(conn, &batch_snapshot.guarded(&changes)).await?) };
        let written = match good {
            None => Vec::new(),
            Some(None) => return Ok(None),
            Some(Some(good)) => {
                let mut written = all_written(&changes);
                let stale = written.iter_mut().zip(&changes).filter(|(_, changes)| !good.contains(&changes.instance.id));
                stale.for_each(|(written, _)| *written = Written::Outdated);
                written
            }
        };
        let stale: Vec<_> = written.iter().map(|written| *written == Written::Outdated).collect();
        let mut stale = stale.into_iter();
        let is_stale: Vec<_> = decided.iter().map(|decided| decided.changes.is_some() && stale.next().unwrap_or(false)).collect();
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        commit_outcomes.iter_mut().zip(is_stale).filter(|(_, is_stale)| *is_stale).for_each(|(outcome, _)| outcome.stale());
        row_version(&mut commit_outcomes, RowVersion::Row);
        Ok(Some(commit_outcomes))
    }

    /// Decides a batch speculatively at this file version of SQLite, before the writer is free. Returns `None` if more rows have to be
    /// read.
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

    /// Writes and commits a speculative decision that needs nothing more from the database. Returns `None` if the file version has changed
    /// or the session is no longer as valid as it was; nothing is written then.
    pub(crate) async fn commit_speculation(
        &self,
        batch: &[Request],
        speculation: Speculation,
    ) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        let engine = self.engine;
        if !write_as_script(&engine.store, &engine.file_versions, file_version, &changes, self.session_check()).await? {
            return Ok(None);
        }
        let written = all_written(&changes);
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        row_version(&mut commit_outcomes, RowVersion::FileVersion(file_version));
        Ok(Some(commit_outcomes))
    }

    /// Writes a speculative decision in a transaction at the same file version.
    pub(crate) async fn write_speculation(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        speculation: Speculation,
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let mut commit_outcomes = self.write(conn, &mut batch_snapshot, batch.iter().map(|request| &request.target), decided).await?;
        row_version(&mut commit_outcomes, RowVersion::FileVersion(file_version));
        Ok(commit_outcomes)
    }
}

impl Speculation {
    /// Returns true if all changes can be written without another read.
    pub(crate) fn fits(&self) -> bool {
        self.decided.iter().filter_map(|decided| decided.changes.as_ref()).all(fits)
    }
}

/// The results of changes that [`fits`] accepts and that were all written.
fn all_written(changes: &[&Changes]) -> Vec<Written> {
    changes.iter().map(|changes| Written::Done { payload: payload(changes).map(Cow::into_owned) }).collect()
}

/// Sets the version that shows later whether each instance is unchanged.
fn row_version(commit_outcomes: &mut [CommitOutcome], row_version: RowVersion) {
    for moved in commit_outcomes.iter_mut().flat_map(|commit_outcome| &mut commit_outcome.moved) {
        moved.row_version = Some(row_version);
    }
}

//! A batch of plain requests under optimistic concurrency control: decided without a lock, and written only if nothing has changed.

use super::{BatchCommit, Decided};
use crate::changes::Changes;
use crate::commit::batch_snapshot::BatchSnapshot;
use crate::commit::database::Database;
use crate::commit::environment::Environment;
use crate::commit::outcome::CommitOutcome;
use crate::commit::request::Request;
use crate::commit::rows::{FileVersion, RowVersion};
use crate::commit::written::{Written, fits};
use crate::decide::inbox::NeedsMoreRows;

/// A speculative decision for SQLite, which has one writer: the batch was decided while another one was written. It is written only if the
/// file version is still the one at which it was made.
pub struct Speculation<E: Environment> {
    file_version: FileVersion,
    batch_snapshot: BatchSnapshot,
    decided: Vec<Decided<E>>,
}

impl<E: Environment> Speculation<E> {
    /// The file version at which the batch was decided.
    pub fn file_version(&self) -> FileVersion {
        self.file_version
    }

    /// The changes that are to be written.
    pub fn changes(&self) -> Vec<&Changes> {
        self.decided.iter().filter_map(|decided| decided.changes.as_ref()).collect()
    }

    /// Returns true if all changes can be written without another read.
    pub fn fits(&self) -> bool {
        self.changes().into_iter().all(fits)
    }
}

impl<E: Environment> BatchCommit<'_, E> {
    /// Reads, decides, writes and commits a batch with one statement of PostgreSQL and without locks. With `uses_cache` it uses cached
    /// snapshots instead of reading the rows. A decision on a row that has changed is not written; its request is decided again. Returns
    /// `None` if the batch needs locks; nothing is written then.
    pub async fn single_statement<D: Database>(
        &self,
        db: &mut D,
        batch: &[&Request],
        uses_cache: bool,
    ) -> Result<Option<Vec<CommitOutcome<E>>>, D::Error> {
        let mut batch_snapshot = BatchSnapshot::see(db, batch, &self.new_instance(), None, uses_cache).await?;
        let Ok(decided) = self.decide_all(&batch_snapshot, batch) else { return Ok(None) };
        // No row version guards a refusal, and rows of other tables may have changed between the reads. Refusals are decided under locks.
        if decided.iter().any(|decided| matches!(decided.reply, Some(Err(_)))) {
            return Ok(None);
        }
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        if !changes.iter().all(|changes| fits(changes)) {
            return Ok(None);
        }
        let mut written: Vec<_> = changes.iter().map(|changes| Written::done(changes)).collect();
        if !changes.is_empty() {
            let Some(good) = db.write_guarded(&batch_snapshot.guarded(&changes)).await? else { return Ok(None) };
            let stale = written.iter_mut().zip(&changes).filter(|(_, changes)| !good.contains(&changes.instance.id));
            stale.for_each(|(written, _)| *written = Written::Outdated);
        }
        let mut stale = written.iter().map(|written| *written == Written::Outdated);
        let is_stale: Vec<_> = decided.iter().map(|decided| decided.changes.is_some() && stale.next().unwrap_or(false)).collect();
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        commit_outcomes.iter_mut().zip(is_stale).filter(|(_, is_stale)| *is_stale).for_each(|(outcome, _)| outcome.stale());
        set_row_version(&mut commit_outcomes, RowVersion::Row);
        Ok(Some(commit_outcomes))
    }

    /// Decides a batch speculatively at this file version of SQLite, before the writer is free. Returns `None` if more rows have to be
    /// read.
    pub async fn speculate<D: Database>(
        &self,
        db: &mut D,
        batch: &[&Request],
        file_version: FileVersion,
    ) -> Result<Option<Speculation<E>>, D::Error> {
        let batch_snapshot = BatchSnapshot::see(db, batch, &self.new_instance(), Some(file_version), true).await?;
        Ok(self.decide_all(&batch_snapshot, batch).ok().map(|decided| Speculation { file_version, batch_snapshot, decided }))
    }

    /// The outcomes of a speculative decision whose [changes](Speculation::changes) [fit](Speculation::fits) and are all written.
    pub fn speculation_written(&self, batch: &[&Request], speculation: Speculation<E>) -> Vec<CommitOutcome<E>> {
        let written = speculation.changes().into_iter().map(Written::done).collect();
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let mut commit_outcomes = self.commit_outcomes(&mut batch_snapshot, batch.iter().map(|request| &request.target), decided, written);
        set_row_version(&mut commit_outcomes, RowVersion::FileVersion(file_version));
        commit_outcomes
    }

    /// Writes a speculative decision in a transaction at the same file version.
    pub async fn write_speculation<D: Database>(
        &self,
        db: &mut D,
        batch: &[&Request],
        speculation: Speculation<E>,
    ) -> Result<Vec<CommitOutcome<E>>, D::Error> {
        let Speculation { file_version, mut batch_snapshot, decided } = speculation;
        let mut commit_outcomes = self.write(db, &mut batch_snapshot, batch.iter().map(|request| &request.target), decided).await?;
        set_row_version(&mut commit_outcomes, RowVersion::FileVersion(file_version));
        Ok(commit_outcomes)
    }

    fn decide_all(&self, batch_snapshot: &BatchSnapshot, batch: &[&Request]) -> Result<Vec<Decided<E>>, NeedsMoreRows> {
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            decided.push(self.decide(batch_snapshot, request)?);
        }
        Ok(decided)
    }
}

/// Sets the version that shows later whether each instance is unchanged.
fn set_row_version<E: Environment>(commit_outcomes: &mut [CommitOutcome<E>], row_version: RowVersion) {
    for moved in commit_outcomes.iter_mut().flat_map(|commit_outcome| &mut commit_outcome.moved) {
        moved.row_version = Some(row_version);
    }
}

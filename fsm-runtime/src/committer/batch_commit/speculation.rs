//! A batch of plain requests on SQLite: decided while another batch is written, and written only if nothing has changed.

use super::optimistic::{all_written, row_version};
use super::{BatchCommit, Decided};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::Request;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::file_version::FileVersion;
use crate::store::write::{RowVersion, fits, write_as_script};

/// A speculative decision. It is written only if the file version is still the one at which it was made.
pub(crate) struct Speculation {
    pub(crate) file_version: FileVersion,
    batch_snapshot: BatchSnapshot,
    decided: Vec<Decided>,
}

impl BatchCommit<'_> {
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

    /// Returns true if the session is as valid now as when the batch was created. The wait for the writer may have been long.
    pub(crate) fn is_session_unchanged(&self) -> bool {
        self.session_check()()
    }

    /// Returns the same check as a closure, for use in another thread.
    fn session_check(&self) -> impl FnOnce() -> bool + std::marker::Send + use<> {
        let (session, clock, then) = (self.engine.work.as_ref().map(|work| work.session.clone()), self.engine.clock.clone(), self.session);
        move || session.and_then(|session| session.certain(clock.now())) == then
    }
}

impl Speculation {
    /// Returns true if all changes can be written without another read.
    pub(crate) fn fits(&self) -> bool {
        self.decided.iter().filter_map(|decided| decided.changes.as_ref()).all(fits)
    }
}

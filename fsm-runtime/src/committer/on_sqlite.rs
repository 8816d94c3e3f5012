//! The commit of a batch on SQLite: as one script if it was decided speculatively, else in a transaction.

use super::batch_commit::BatchCommit;
use super::batch_commit::speculation::Speculation;
use super::commit_outcome::CommitOutcome;
use super::request::Request;
use crate::engine::Engine;
use crate::session::Renewal;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::sessions;

impl Engine {
    pub(super) async fn commit_on_sqlite(&self, batch: &[Request]) -> Result<Vec<CommitOutcome>, StoreError> {
        let batch_commit = BatchCommit::new(self);
        let speculation = match self.speculate(&batch_commit, batch).await? {
            Some(speculation) if speculation.fits() && !self.is_renewal_due() => {
                match self.store.naming(batch_commit.commit_speculation(batch, speculation).await)? {
                    Some(commit_outcomes) => return Ok(commit_outcomes),
                    None => None,
                }
            }
            speculation => speculation,
        };
        let (mut tx, file_version) = self.store.begin_at_file_version(&self.file_versions).await?;
        let commit_outcomes =
            match speculation.filter(|speculation| Some(speculation.file_version) == file_version && batch_commit.is_session_unchanged()) {
                Some(speculation) => batch_commit.write_speculation(&mut tx.conn(), batch, speculation).await,
                None => BatchCommit::skipping_locked(self).of(&mut tx.conn(), batch).await,
            };
        let commit_outcomes = self.store.naming(commit_outcomes)?;
        let renewal = self.renew_in(&mut tx.conn()).await?;
        self.store.naming(tx.commit().await)?;
        if let (Some(work), Some(renewal)) = (&self.work, renewal) {
            work.session.note_renewal(renewal);
        }
        Ok(commit_outcomes)
    }

    /// Decides a batch of plain requests speculatively on SQLite, which has one writer: this batch is decided while another one is written.
    async fn speculate(&self, batch_commit: &BatchCommit<'_>, batch: &[Request]) -> Result<Option<Speculation>, StoreError> {
        match self.file_versions.lasting() {
            Some(file_version) if batch.iter().all(Request::is_short) => {
                let mut reader = self.store.looker().await?;
                batch_commit.speculation(&mut reader.conn(), batch, file_version).await
            }
            _ => Ok(None),
        }
    }

    fn is_renewal_due(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.session.due_renewal(self.clock.now()).is_some())
    }

    /// Renews the lease in the transaction of this batch. SQLite has one writer and does not serve waiting connections in order, so under
    /// load the lease's own thread may come too late.
    async fn renew_in(&self, conn: &mut Conn<'_>) -> Result<Option<Renewal>, StoreError> {
        let Some(work) = &self.work else { return Ok(None) };
        let Some(renewal) = work.session.due_renewal(self.clock.now()) else { return Ok(None) };
        Ok(sessions::renew(conn, renewal.lease(&work.session)).await?.then_some(renewal))
    }
}

//! The commit of a batch on SQLite: as one script if it was decided speculatively, else in a transaction.

use fsm_core::commit::batch_commit::BatchCommit;
use fsm_core::commit::batch_commit::optimistic::Speculation;
use fsm_core::commit::request;
use fsm_core::ids::SessionId;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::sessions;
use fsm_store::write::write_as_script;

use super::environment::CommitOutcome;
use super::request::{Request, to_decide};
use crate::engine::Engine;
use crate::session::Renewal;

impl Engine {
    pub(super) async fn commit_on_sqlite(&self, batch: &[Request]) -> Result<Vec<CommitOutcome>, StoreError> {
        let batch_commit = self.batch_commit();
        let batch = &to_decide(batch);
        let speculation = match self.speculate(&batch_commit, batch).await? {
            Some(speculation) if speculation.fits() && !self.is_renewal_due() => {
                match self.store.naming(self.commit_speculation(&batch_commit, batch, speculation).await)? {
                    Some(commit_outcomes) => return Ok(commit_outcomes),
                    None => None,
                }
            }
            speculation => speculation,
        };
        let (mut tx, file_version) = self.store.begin_at_file_version(&self.file_versions).await?;
        let commit_outcomes = match speculation
            .filter(|speculation| Some(speculation.file_version()) == file_version && self.session() == batch_commit.session())
        {
            Some(speculation) => batch_commit.write_speculation(&mut tx.conn(), batch, speculation).await,
            None => self.batch_commit().skipping_locked().of(&mut tx.conn(), batch).await,
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
    async fn speculate(
        &self,
        batch_commit: &BatchCommit<'_, Engine>,
        batch: &[&request::Request],
    ) -> Result<Option<Speculation<Engine>>, StoreError> {
        match self.file_versions.lasting() {
            Some(file_version) if batch.iter().all(|request| request.is_short()) => {
                let mut reader = self.store.engine_reader().await?;
                batch_commit.speculate(&mut reader.conn(), batch, file_version).await
            }
            _ => Ok(None),
        }
    }

    /// Writes and commits a speculative decision that needs nothing more from the database. Returns `None` if the file version has changed
    /// or the session is no longer as valid as it was; nothing is written then.
    async fn commit_speculation(
        &self,
        batch_commit: &BatchCommit<'_, Engine>,
        batch: &[&request::Request],
        speculation: Speculation<Engine>,
    ) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        let (changes, is_valid) = (speculation.changes(), self.session_check(batch_commit.session()));
        let is_written = write_as_script(&self.store, &self.file_versions, speculation.file_version(), &changes, is_valid).await?;
        Ok(is_written.then(|| batch_commit.speculation_written(batch, speculation)))
    }

    /// Returns a check whether the session is still as valid as `then`, for the thread of the writer: the wait for it may be long.
    fn session_check(&self, then: Option<SessionId>) -> impl FnOnce() -> bool + Send + use<> {
        let (session, clock) = (self.work.as_ref().map(|work| work.session.clone()), self.clock.clone());
        move || session.and_then(|session| session.certain(clock.now())) == then
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

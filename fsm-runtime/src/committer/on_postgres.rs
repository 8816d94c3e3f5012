//! The commit of a batch on PostgreSQL: by one statement if it can be, else in a transaction with locks.

use fsm_store::error::StoreError;

use super::environment::CommitOutcome;
use super::request::{Request, to_decide};
use crate::engine::Engine;

impl Engine {
    pub(super) async fn commit_on_postgres(&self, batch: &[Request]) -> Result<Vec<CommitOutcome>, StoreError> {
        if let Some(commit_outcomes) = self.commit_single_statement(batch).await? {
            return Ok(commit_outcomes);
        }
        let mut tx = self.store.begin_for_commit().await?;
        let number = tx.number();
        self.measure(&mut tx.conn(), number).await?;
        let commit_outcomes = self.store.naming(self.batch_commit().skipping_locked().of(&mut tx.conn(), &to_decide(batch)).await)?;
        self.store.naming(tx.commit().await)?;
        Ok(commit_outcomes)
    }

    /// A batch of plain requests needs no explicit transaction. This saves round trips to the server, which are a large part of the
    /// commit's time.
    async fn commit_single_statement(&self, batch: &[Request]) -> Result<Option<Vec<CommitOutcome>>, StoreError> {
        if !batch.iter().all(|request| request.is_short()) {
            return Ok(None);
        }
        let Some(mut conn) = self.store.for_commits().await? else { return Ok(None) };
        let number = conn.number();
        self.measure(&mut conn.conn(), number).await?;
        let has_cached = batch.iter().any(|request| request.cached_snapshot(None).is_some());
        // The first try uses cached snapshots. If they are outdated, the second try reads the rows, and only then is the batch decided
        // under locks.
        for uses_cache in [true, false].into_iter().filter(|uses_cache| has_cached || !uses_cache) {
            let written = self.store.naming(self.batch_commit().single_statement(&mut conn.conn(), &to_decide(batch), uses_cache).await)?;
            if written.is_some() {
                self.snapshot_cache.record(batch, uses_cache);
                return Ok(written);
            }
        }
        Ok(None)
    }
}

//! A batch of plain requests on PostgreSQL: decided without a lock, and written and committed by one statement.

use std::borrow::Cow;

use fsm_core::changes::Changes;

use super::BatchCommit;
use super::optimistic::{all_written, row_version};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::Request;
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::write::{RowVersion, Written, fits, payload, write_in_one, write_single_statement};

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

    /// True if one statement can write this send in the caller's transaction.
    pub(super) fn fits_in_one(&self, conn: &Conn<'_>, send: &Changes) -> bool {
        self.is_guest && conn.is_postgres() && fits(send)
    }

    /// Writes a send by one statement in the caller's transaction.
    pub(super) async fn write_in_one(&self, conn: &mut Conn<'_>, send: &Changes) -> Result<Written, StoreError> {
        Ok(match write_in_one(conn, send).await? {
            true => Written::Done { payload: payload(send).map(Cow::into_owned) },
            false => Written::Outdated,
        })
    }
}

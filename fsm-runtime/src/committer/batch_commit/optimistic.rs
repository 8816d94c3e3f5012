//! A batch of plain requests under optimistic concurrency control: decided without a lock, and written only if nothing has changed.

use std::borrow::Cow;

use fsm_core::changes::Changes;
use fsm_core::decide::inbox::NeedsMoreRows;

use super::{BatchCommit, Decided};
use crate::committer::batch_snapshot::BatchSnapshot;
use crate::committer::commit_outcome::CommitOutcome;
use crate::committer::request::Request;
use crate::store::write::{RowVersion, Written, payload};

impl BatchCommit<'_> {
    pub(super) fn decide_all(&self, batch_snapshot: &BatchSnapshot, batch: &[Request]) -> Result<Vec<Decided>, NeedsMoreRows> {
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            decided.push(self.decide(batch_snapshot, request)?);
        }
        Ok(decided)
    }
}

/// The results of changes that [`fits`] accepts and that were all written.
pub(super) fn all_written(changes: &[&Changes]) -> Vec<Written> {
    changes.iter().map(|changes| Written::Done { payload: payload(changes).map(Cow::into_owned) }).collect()
}

/// Sets the version that shows later whether each instance is unchanged.
pub(super) fn row_version(commit_outcomes: &mut [CommitOutcome], row_version: RowVersion) {
    for moved in commit_outcomes.iter_mut().flat_map(|commit_outcome| &mut commit_outcome.moved) {
        moved.row_version = Some(row_version);
    }
}

//! Counts the results of commits for the metrics, after the commit. The worker counts its attempts; lost attempts are counted here.

use fsm_core::commit::outcome::After;
use fsm_core::commit::request::{Reply, RequestKind};
use fsm_core::outcome::Outcome;

use super::environment::CommitOutcome;
use super::request::Request;
use crate::catalog::Catalog;
use crate::metrics::AttemptOutcome;

/// Counts a request that was carried out.
pub(super) fn count(request: &Request, commit_outcome: &CommitOutcome, catalog: &Catalog) {
    let RequestKind::Complete(report) = &request.kind else { return };
    if !matches!(&commit_outcome.reply, Some(Ok(Reply::Completed { counted: true }))) {
        return;
    }
    let Some(metrics) = catalog.get(&report.attempt.machine).and_then(|known| known.metrics(&report.attempt.verb)) else { return };
    if matches!(report.outcome, Outcome::Lost) {
        metrics.attempt_ended(AttemptOutcome::Lost);
    }
    match commit_outcome.after {
        Some(After::Again { .. }) => metrics.retry_scheduled(),
        Some(After::Exhausted) => metrics.exhausted(),
        None if matches!(report.outcome, Outcome::Success { .. }) => metrics.succeeded(),
        Some(After::Interrupted) | None => {}
    }
}

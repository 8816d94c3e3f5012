//! The progress of a caller's request. When the caller's patience ends, the request is withdrawn unless a commit of it is in flight.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fsm_core::duration;
use fsm_store::error::StoreError;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};

/// The progress of a caller's request.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    progress: Mutex<Progress>,
    /// No commit of the request begins after this time.
    until: Option<Instant>,
}

#[derive(Debug, Default)]
enum Progress {
    /// No commit of the request has begun.
    #[default]
    PriorityQueue,
    /// A commit of the request failed, and it waits for a retry.
    Failed(Arc<StoreError>),
    /// A commit of the request is in flight since this time.
    InFlightCommit(Instant),
    /// The caller gave up while the request waited.
    Withdrawn,
}

impl Ticket {
    /// The ticket of a request that is given up at this time.
    pub(super) fn until(until: Instant) -> Ticket {
        Ticket { until: Some(until), ..Ticket::default() }
    }

    /// Records that a commit begins. Returns false if the request was withdrawn.
    pub(super) fn begin(&self) -> bool {
        let mut progress = self.progress();
        let is_in_time = self.until.is_none_or(|until| Instant::now() < until);
        let is_wanted = is_in_time && !matches!(*progress, Progress::Withdrawn);
        if is_wanted {
            *progress = Progress::InFlightCommit(Instant::now());
        }
        is_wanted
    }

    /// Records that the commit failed. The request waits for the next one, unless it was withdrawn.
    pub(super) fn failed(&self, error: &Arc<StoreError>) {
        self.met_lock(error);
    }

    /// Withdraws the request: no commit of it begins from now on.
    fn withdraw(&self) {
        *self.progress() = Progress::Withdrawn;
    }

    /// The time of the latest progress after `since`, or `None`. Progress means that a commit of the request began, or that the request
    /// waits and another commit of this process succeeded.
    pub(super) fn progress_since(&self, since: Instant, last_commit: Option<Instant>) -> Option<Instant> {
        let progress = match *self.progress() {
            Progress::PriorityQueue => last_commit,
            Progress::InFlightCommit(begun) => Some(begun),
            Progress::Failed(_) | Progress::Withdrawn => None,
        };
        progress.filter(|progress| *progress > since)
    }

    /// Records that the instance is locked and that nothing was written. The request waits until the lock is free. Returns false if the
    /// request was withdrawn.
    pub(super) fn met_lock(&self, error: &Arc<StoreError>) -> bool {
        let mut progress = self.progress();
        let is_wanted = !matches!(*progress, Progress::Withdrawn);
        if is_wanted {
            *progress = Progress::Failed(Arc::clone(error));
        }
        is_wanted
    }

    /// Ends the caller's wait and returns its error. The request is withdrawn unless a commit of it is in flight.
    pub(super) fn give_up(&self, patience: Duration) -> Error {
        let within = duration::display(patience);
        match std::mem::replace(&mut *self.progress(), Progress::Withdrawn) {
            Progress::Failed(error) => error.into(),
            Progress::PriorityQueue | Progress::Withdrawn => Error::other(
                ErrorKind::Database,
                format!(
                    "the database did not take the request within {within}: nothing was written; send again later, or set a longer patience"
                ),
            ),
            Progress::InFlightCommit(_) => Error::other(
                ErrorKind::Database,
                format!(
                    "the database did not answer within {within}: whether the request took effect is not known; the same request with the same \
                     dedup id is safe to send again"
                ),
            ),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no code panics while it holds a ticket")
    }
}

/// Withdraws a request when it is dropped.
#[derive(Debug)]
pub(crate) struct Withdrawal(pub(super) Arc<Ticket>);

impl Drop for Withdrawal {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// The time of the last successful commit of this process.
#[derive(Debug, Default)]
pub(crate) struct LastCommit(Mutex<Option<Instant>>);

impl LastCommit {
    /// Records a successful commit.
    pub(super) fn note(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// The time of the last successful commit.
    pub(crate) fn latest(&self) -> Option<Instant> {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("no code panics while it holds a moment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_withdrawn_only_while_no_commit_of_it_is_under_way() {
        let ticket = Ticket::default();
        let error = ticket.give_up(Duration::from_secs(10));
        assert!(error.is_database() && error.to_string().contains("nothing was written"), "{error}");
        assert!(!ticket.begin(), "it was withdrawn");

        let ticket = Ticket::default();
        assert!(ticket.begin());
        let error = ticket.give_up(Duration::from_secs(10));
        assert!(error.is_database() && error.to_string().contains("is not known"), "{error}");
    }

    #[test]
    fn a_request_that_waits_for_its_turn_has_patience_while_others_are_committed() {
        let (ticket, commits, since) = (Ticket::default(), LastCommit::default(), Instant::now());
        assert_eq!(ticket.progress_since(since, commits.latest()), None);
        commits.note();
        let latest = commits.latest().filter(|latest| *latest > since);
        assert_eq!(ticket.progress_since(since, latest), latest);
        assert_eq!(ticket.progress_since(Instant::now(), latest), None, "nothing has been committed since");
        assert!(ticket.begin());
        assert!(ticket.progress_since(since, None).is_some(), "its own commit began");
        ticket.failed(&Arc::new(StoreError::ConcurrentChange));
        assert_eq!(ticket.progress_since(since, latest), None, "the error is known");
    }

    #[test]
    fn a_request_that_was_withdrawn_is_not_revived_by_a_lock() {
        let error = Arc::new(StoreError::ConcurrentChange);
        let ticket = Ticket::default();
        assert!(ticket.met_lock(&error) && ticket.begin());
        assert!(ticket.met_lock(&error));
        assert!(ticket.give_up(Duration::from_secs(1)).is_contended(), "the error says that the row is locked");
        assert!(!ticket.met_lock(&error) && !ticket.begin());
    }

    #[test]
    fn a_request_that_was_withdrawn_is_not_revived_by_a_failed_commit() {
        let ticket = Ticket::default();
        assert!(ticket.begin());
        ticket.withdraw();
        ticket.failed(&Arc::new(StoreError::ConcurrentChange));
        assert!(!ticket.begin());
    }

    #[test]
    fn no_commit_of_a_request_begins_after_its_last_moment() {
        let (now, a_minute) = (Instant::now(), Duration::from_secs(60));
        assert!(Ticket::until(now + a_minute).begin());
        assert!(!Ticket::until(now).begin());
    }

    #[test]
    fn the_caller_is_told_the_last_error() {
        let ticket = Ticket::default();
        assert!(ticket.begin());
        ticket.failed(&Arc::new(StoreError::ConcurrentChange));
        assert!(ticket.give_up(Duration::from_secs(1)).is_contended());
        assert!(!ticket.begin());
    }
}

//! The commits in flight in this process, for tasks that must wait until these commits have ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::guard;

/// The set of commits in flight. Other tasks wait for commits, and a commit never waits for them: a verb's commit has a transaction open,
/// and other tasks may wait for its connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightCommits(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    numbers: Mutex<Numbers>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// A commit, from before its start until its consequences have been carried out.
#[derive(Debug)]
pub(crate) struct InFlightCommit {
    inner: Arc<Inner>,
    number: u64,
}

impl InFlightCommits {
    /// Registers a commit. It does not wait.
    pub(crate) fn begin(&self) -> InFlightCommit {
        let mut numbers = self.0.numbers();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        InFlightCommit { inner: Arc::clone(&self.0), number }
    }

    /// Waits until all commits that have begun before this call have ended. Later ones may still be in flight.
    pub(crate) async fn finish_current(&self) {
        let last = self.0.numbers().last;
        loop {
            let ended = self.0.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.0.numbers().under_way.first().is_none_or(|first| *first > last) {
                return;
            }
            // This wait has no limit of its own, because each operation of a commit has one.
            ended.await;
        }
    }
}

impl Inner {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        guard::lock(&self.numbers)
    }
}

impl Drop for InFlightCommit {
    fn drop(&mut self) {
        self.inner.numbers().under_way.remove(&self.number);
        self.inner.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::InFlightCommits;

    #[tokio::test]
    async fn who_looks_waits_for_what_has_begun_and_for_nothing_else() {
        let in_flight = InFlightCommits::default();
        in_flight.finish_current().await;
        let (first, second) = (in_flight.begin(), in_flight.begin());
        let mut looking = Box::pin(in_flight.finish_current());
        assert!((&mut looking).now_or_never().is_none());
        let later = in_flight.begin();
        drop(second);
        assert!((&mut looking).now_or_never().is_none(), "the first is still under way");
        drop(first);
        assert!((&mut looking).now_or_never().is_some(), "what began later is not waited for");
        drop(later);
    }
}

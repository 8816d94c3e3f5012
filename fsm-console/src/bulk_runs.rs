//! The bulk acts that were begun, with their progress and their refusals.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Mutex;
use uuid::Uuid;

/// The number of bulk acts above which those that have ended are forgotten.
const MOST: usize = 100;

/// The bulk acts of one console, kept for their pages.
#[derive(Default)]
pub(crate) struct BulkRuns(Mutex<HashMap<Uuid, Arc<BulkRun>>>);

/// An act on many instances that was begun.
pub(crate) struct BulkRun {
    pub(crate) machine: String,
    pub(crate) action: String,
    pub(crate) total: usize,
    done: AtomicUsize,
    /// The key of each instance that refused the act, and the reason.
    pub(crate) refused: Mutex<Vec<(String, String)>>,
}

impl BulkRuns {
    /// Keeps the act, and returns an id for its page.
    pub(crate) async fn keep(&self, run: Arc<BulkRun>) -> Uuid {
        let id = Uuid::new_v4();
        let mut runs = self.0.lock().await;
        if runs.len() >= MOST {
            runs.retain(|_, run| run.done() < run.total);
        }
        runs.insert(id, run);
        id
    }

    pub(crate) async fn get(&self, id: Uuid) -> Option<Arc<BulkRun>> {
        self.0.lock().await.get(&id).cloned()
    }
}

impl BulkRun {
    pub(crate) fn new(machine: String, action: String, total: usize) -> BulkRun {
        BulkRun { machine, action, total, done: AtomicUsize::new(0), refused: Mutex::default() }
    }

    /// The number of instances on which the act was carried out or refused.
    pub(crate) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Counts one instance more.
    pub(crate) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

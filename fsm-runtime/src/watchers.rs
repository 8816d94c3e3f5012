//! Who in this process waits for an instance to move, and is told when a commit moved it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::instance::Instance;
use tokio::sync::mpsc;

use crate::committer::queue::Whose;

/// How much one who does not listen is told at most. What is left out is found by looking.
const MOST_UNHEARD: usize = 256;

/// An instance as a commit left it.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    pub(crate) instance: Instance,
    /// Its live attempt, where the commit knew it.
    pub(crate) live: Option<Attempt>,
}

type Waiting = HashMap<Whose, Vec<(u64, mpsc::Sender<Arc<Moved>>)>>;

/// The waiting, by instance.
#[derive(Default)]
pub(crate) struct Watchers {
    // Counted apart, so that a commit that nobody waits for costs nothing.
    count: AtomicUsize,
    by_instance: Mutex<Waiting>,
}

/// A place among the waiting, given up when dropped.
pub(crate) struct Watch {
    engine: Arc<crate::engine::Engine>,
    whose: Whose,
    id: u64,
    moved: mpsc::Receiver<Arc<Moved>>,
}

impl Watchers {
    pub(crate) fn watch(engine: &Arc<crate::engine::Engine>, whose: Whose) -> Watch {
        let (told, moved) = mpsc::channel(MOST_UNHEARD);
        let watchers = &engine.watchers;
        let id = uuid::Uuid::now_v7().as_u64_pair().1;
        watchers.lock().entry(whose.clone()).or_default().push((id, told));
        watchers.count.fetch_add(1, Ordering::AcqRel);
        Watch { engine: Arc::clone(engine), whose, id, moved }
    }

    /// Whether anybody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(crate) fn tell(&self, moved: Moved) {
        if self.is_empty() {
            return;
        }
        let whose = Whose::new(&moved.instance.machine, &moved.instance.key);
        if let Some(waiting) = self.lock().get(&whose) {
            let moved = Arc::new(moved);
            for (_, told) in waiting {
                // Whoever is gone takes its place out by itself, and whoever does not listen looks for itself later.
                let _ = told.try_send(Arc::clone(&moved));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.by_instance.lock().expect("no code panics while it holds the watchers")
    }
}

impl Watch {
    /// The instance after the next commit of this process that moves it.
    pub(crate) async fn moved(&mut self) -> Option<Arc<Moved>> {
        self.moved.recv().await
    }

    /// The same, if there was such a commit already.
    pub(crate) fn moved_already(&mut self) -> Option<Arc<Moved>> {
        self.moved.try_recv().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watchers = &self.engine.watchers;
        watchers.count.fetch_sub(1, Ordering::AcqRel);
        let mut by_instance = watchers.lock();
        if let Some(waiting) = by_instance.get_mut(&self.whose) {
            waiting.retain(|(id, _)| *id != self.id);
            if waiting.is_empty() {
                by_instance.remove(&self.whose);
            }
        }
    }
}

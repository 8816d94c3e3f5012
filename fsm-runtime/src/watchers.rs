//! Who in this process waits for an instance to move, and is told when a commit moved it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::instance::Instance;
use tokio::sync::mpsc;

use crate::committer::queue::Whose;

type Waiting = HashMap<Whose, Vec<(u64, mpsc::UnboundedSender<Arc<Instance>>)>>;

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
    moved: mpsc::UnboundedReceiver<Arc<Instance>>,
}

impl Watchers {
    pub(crate) fn watch(engine: &Arc<crate::engine::Engine>, whose: Whose) -> Watch {
        let (told, moved) = mpsc::unbounded_channel();
        let watchers = &engine.watchers;
        let id = uuid::Uuid::now_v7().as_u64_pair().1;
        watchers.lock().entry(whose.clone()).or_default().push((id, told));
        watchers.count.fetch_add(1, Ordering::AcqRel);
        Watch { engine: Arc::clone(engine), whose, id, moved }
    }

    pub(crate) fn tell(&self, instance: Instance) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let whose = Whose::new(&instance.machine, &instance.key);
        if let Some(waiting) = self.lock().get(&whose) {
            let instance = Arc::new(instance);
            for (_, told) in waiting {
                // Whoever is gone takes its place out by itself.
                let _ = told.send(Arc::clone(&instance));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.by_instance.lock().expect("no code panics while it holds the watchers")
    }
}

impl Watch {
    /// The instance after the next commit of this process that moves it.
    pub(crate) async fn moved(&mut self) -> Option<Arc<Instance>> {
        self.moved.recv().await
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

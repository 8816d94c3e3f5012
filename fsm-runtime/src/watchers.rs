//! Who in this process waits for an instance to move, and is told when a commit moved it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use tokio::sync::mpsc;

use crate::committer::queue::Whose;

type Waiting = HashMap<Whose, Vec<(u64, mpsc::UnboundedSender<Arc<Instance>>)>>;

#[derive(Default)]
struct State {
    waiting: Waiting,
    /// The live attempts that run here: the end of each will be told.
    running: HashMap<Whose, (CallId, u32)>,
}

/// The waiting and what they need not ask the database, by instance.
#[derive(Default)]
pub(crate) struct Watchers {
    by_instance: Mutex<State>,
}

/// A place among the waiting, given up when dropped.
pub(crate) struct Watch {
    engine: Arc<crate::engine::Engine>,
    whose: Whose,
    id: u64,
    moved: mpsc::UnboundedReceiver<Arc<Instance>>,
    /// When it began, the instance had an attempt in execution here: it was not settled, and its end is told.
    pub(crate) is_running: bool,
}

impl Watchers {
    pub(crate) fn watch(engine: &Arc<crate::engine::Engine>, whose: Whose) -> Watch {
        let (told, moved) = mpsc::unbounded_channel();
        let watchers = &engine.watchers;
        let id = uuid::Uuid::now_v7().as_u64_pair().1;
        let mut state = watchers.lock();
        let is_running = state.running.contains_key(&whose);
        state.waiting.entry(whose.clone()).or_default().push((id, told));
        drop(state);
        Watch { engine: Arc::clone(engine), whose, id, moved, is_running }
    }

    /// A commit moved these instances; `runs` are the attempts that it handed to this process.
    pub(crate) fn tell<'r>(&self, moved: Vec<Instance>, runs: impl Iterator<Item = (&'r Instance, &'r Attempt)>) {
        let mut state = self.lock();
        for instance in moved {
            let whose = Whose::new(&instance.machine, &instance.key);
            state.running.remove(&whose);
            if let Some(waiting) = state.waiting.get(&whose) {
                let instance = Arc::new(instance);
                for (_, told) in waiting {
                    // Whoever is gone takes its place out by itself.
                    let _ = told.send(Arc::clone(&instance));
                }
            }
        }
        for (instance, attempt) in runs {
            state.running.insert(Whose::new(&instance.machine, &instance.key), (attempt.call, attempt.number));
        }
    }

    /// The attempt runs here no more, whether or not its end was told.
    pub(crate) fn ended(&self, whose: &Whose, attempt: (CallId, u32)) {
        let mut state = self.lock();
        if state.running.get(whose) == Some(&attempt) {
            state.running.remove(whose);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
        let mut state = watchers.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.whose) {
            waiting.retain(|(id, _)| *id != self.id);
            if waiting.is_empty() {
                state.waiting.remove(&self.whose);
            }
        }
    }
}

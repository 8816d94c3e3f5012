//! Who in this process waits for an instance to move, and is told when a commit moved it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use tokio::sync::mpsc;

use crate::committer::request::Whose;

/// How much one who does not listen is told at most. What is left out is found by looking.
const MOST_UNHEARD: usize = 256;

/// An instance as a commit left it.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    pub(crate) instance: Instance,
    /// Its live attempt, where the commit knew it.
    pub(crate) live: Option<Attempt>,
}

/// Who waits, and where it is told.
type Told = (u64, mpsc::Sender<Arc<Moved>>);

#[derive(Default)]
struct State {
    waiting: HashMap<Whose, Vec<Told>>,
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
    watchers: Arc<Watchers>,
    whose: Whose,
    id: u64,
    moved: mpsc::Receiver<Arc<Moved>>,
    /// When it began, the instance had an attempt in execution here: it was not settled, and its end is told.
    pub(crate) is_running: bool,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>, whose: Whose) -> Watch {
        let (told, moved) = mpsc::channel(MOST_UNHEARD);
        let id = uuid::Uuid::now_v7().as_u64_pair().1;
        let mut state = self.lock();
        let is_running = state.running.contains_key(&whose);
        state.waiting.entry(whose.clone()).or_default().push((id, told));
        drop(state);
        Watch { watchers: Arc::clone(self), whose, id, moved, is_running }
    }

    /// Whether anybody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// A commit moved these instances; `runs` are the attempts that it handed to this process.
    pub(crate) fn tell<'r>(&self, moved: Vec<Moved>, runs: impl Iterator<Item = (&'r Instance, &'r Attempt)>) {
        let mut state = self.lock();
        for moved in moved {
            let whose = Whose::new(&moved.instance.machine, &moved.instance.key);
            state.running.remove(&whose);
            if let Some(waiting) = state.waiting.get(&whose) {
                let moved = Arc::new(moved);
                for (_, told) in waiting {
                    // Whoever is gone takes its place out by itself, and whoever does not listen looks for itself later.
                    let _ = told.try_send(Arc::clone(&moved));
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
        let mut state = self.watchers.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.whose) {
            waiting.retain(|(id, _)| *id != self.id);
            if waiting.is_empty() {
                state.waiting.remove(&self.whose);
            }
        }
    }
}

//! Who in this process waits for an instance to move, and is told when a commit moved it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use tokio::sync::Notify;

use crate::committer::request::Whose;
use crate::committer::verdict::{Moved, Run};
use crate::guard;

/// How much one who does not listen is told at most. What is left out is found by looking.
const MOST_UNHEARD: usize = 256;

/// An instance as a commit left it.
#[derive(Debug, Clone)]
pub(crate) struct News {
    pub(crate) instance: Arc<Instance>,
    /// Its live attempt, where the commit knew it.
    pub(crate) live: Option<Arc<Attempt>>,
}

/// What one who waits was told and has not heard yet.
#[derive(Default)]
struct Mailbox {
    unheard: Mutex<VecDeque<News>>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    waiting: HashMap<Whose, Vec<Arc<Mailbox>>>,
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
    mailbox: Arc<Mailbox>,
    /// When it began, the instance had an attempt in execution here: it was not settled, and its end is told.
    pub(crate) is_running: bool,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>, whose: Whose) -> Watch {
        let mailbox: Arc<Mailbox> = Arc::default();
        let mut state = self.lock();
        let is_running = state.running.contains_key(&whose);
        state.waiting.entry(whose.clone()).or_default().push(Arc::clone(&mailbox));
        drop(state);
        Watch { watchers: Arc::clone(self), whose, mailbox, is_running }
    }

    /// A commit moved these instances, and handed the `runs` to this process.
    pub(crate) fn tell(&self, moved: &[Moved], runs: &[Run]) {
        let mut state = self.lock();
        for Moved { whose, instance, live, .. } in moved {
            state.running.remove(whose);
            for mailbox in state.waiting.get(whose).into_iter().flatten() {
                mailbox.put(News { instance: Arc::clone(instance), live: live.clone() });
            }
        }
        for Run { whose, claimed, .. } in runs {
            state.running.insert(whose.clone(), (claimed.attempt.call, claimed.attempt.number));
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
        guard::lock(&self.by_instance)
    }
}

impl Mailbox {
    /// Whoever does not listen looks for itself later.
    fn put(&self, news: News) {
        let mut unheard = self.unheard();
        if unheard.len() < MOST_UNHEARD {
            unheard.push_back(news);
            drop(unheard);
            let _ = guard::guarded("a waker", || self.wake.notify_one());
        }
    }

    fn unheard(&self) -> MutexGuard<'_, VecDeque<News>> {
        guard::lock(&self.unheard)
    }
}

impl Watch {
    /// The instance after the next commit of this process that moves it. No bound: nothing may ever move it. All who wait here have a limit or
    /// look at the database now and then.
    pub(crate) async fn moved(&mut self) -> News {
        loop {
            match self.moved_already() {
                Some(news) => return news,
                None => self.mailbox.wake.notified().await,
            }
        }
    }

    /// The same, if there was such a commit already.
    pub(crate) fn moved_already(&mut self) -> Option<News> {
        self.mailbox.unheard().pop_front()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.watchers.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.whose) {
            waiting.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if waiting.is_empty() {
                state.waiting.remove(&self.whose);
            }
        }
    }
}

//! The tasks of this process that wait for changes of an instance, and their notification by commits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use fsm_core::call::Attempt;
use fsm_core::commit::instance_key::{InstanceKey, InstanceMap};
use fsm_core::commit::outcome::{ChangedInstance, Run};
use fsm_core::ids::CallId;
use fsm_core::instance::Instance;
use tokio::sync::Notify;

use crate::guard;

/// The maximum number of undelivered changes of one watcher. Further changes are dropped; the watcher finds them when it reads the
/// instance.
const MOST_PENDING: usize = 256;

/// The snapshot of an instance that a commit left.
#[derive(Debug, Clone)]
pub(crate) struct CommittedInstance {
    pub(crate) instance: Arc<Instance>,
    /// The live attempt, if the commit knew it.
    pub(crate) live: Option<Arc<Attempt>>,
}

/// The changes that a watcher has not taken yet.
#[derive(Default)]
struct PendingChanges {
    changes: Mutex<VecDeque<CommittedInstance>>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    waiting: InstanceMap<Vec<Arc<PendingChanges>>>,
    /// The live attempts that run in this process. The end of each will be announced.
    running: InstanceMap<(CallId, u32)>,
}

/// The watchers by instance, and the attempts that run here, so that a watcher need not read the database for them.
#[derive(Default)]
pub(crate) struct Watchers {
    by_instance: Mutex<State>,
}

/// A registered watcher. Dropping it ends the registration.
pub(crate) struct Watch {
    watchers: Arc<Watchers>,
    target: InstanceKey,
    pending: Arc<PendingChanges>,
    /// True if the instance had a running attempt in this process at the registration. Then it was not settled, and the end of the attempt
    /// is announced.
    pub(crate) is_running: bool,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>, target: InstanceKey) -> Watch {
        let pending: Arc<PendingChanges> = Arc::default();
        let mut state = self.lock();
        let is_running = state.running.contains_key(&target);
        state.waiting.entry(target.clone()).or_default().push(Arc::clone(&pending));
        drop(state);
        Watch { watchers: Arc::clone(self), target, pending, is_running }
    }

    /// Announces a commit that changed the instances `moved` and handed the attempts `runs` to this process.
    pub(crate) fn announce<S>(&self, moved: &[ChangedInstance], runs: &[Run<S>]) {
        let mut state = self.lock();
        for ChangedInstance { target, instance, newest, .. } in moved {
            state.running.remove(target);
            for pending in state.waiting.get(target).into_iter().flatten() {
                pending.put(CommittedInstance { instance: Arc::clone(instance), live: newest.clone().filter(|_| instance.is_open) });
            }
        }
        for Run { target, attempt, .. } in runs {
            state.running.insert(target.clone(), (attempt.call, attempt.number));
        }
    }

    /// Notes that the attempt no longer runs here, whether or not its end was announced.
    pub(crate) fn ended(&self, target: &InstanceKey, attempt: (CallId, u32)) {
        let mut state = self.lock();
        if state.running.get(target) == Some(&attempt) {
            state.running.remove(target);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        guard::lock(&self.by_instance)
    }
}

impl PendingChanges {
    /// Adds a change. If too many changes are pending, the change is dropped, and the watcher reads the instance later.
    fn put(&self, committed: CommittedInstance) {
        let mut changes = self.changes();
        if changes.len() < MOST_PENDING {
            changes.push_back(committed);
            drop(changes);
            let _ = guard::guarded("a waker", || self.wake.notify_one());
        }
    }

    fn changes(&self) -> MutexGuard<'_, VecDeque<CommittedInstance>> {
        guard::lock(&self.changes)
    }
}

impl Watch {
    /// Waits for the next commit of this process that changes the instance, and returns the instance. This wait has no limit, because there
    /// may be no such commit. All callers have a limit of their own or poll the database.
    pub(crate) async fn next(&mut self) -> CommittedInstance {
        loop {
            match self.try_next() {
                Some(committed) => return committed,
                None => self.pending.wake.notified().await,
            }
        }
    }

    /// Returns the next change if there is one already, without waiting.
    pub(crate) fn try_next(&mut self) -> Option<CommittedInstance> {
        self.pending.changes().pop_front()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut state = self.watchers.lock();
        if let Some(waiting) = state.waiting.get_mut(&self.target) {
            waiting.retain(|pending| !Arc::ptr_eq(pending, &self.pending));
            if waiting.is_empty() {
                state.waiting.remove(&self.target);
            }
        }
    }
}

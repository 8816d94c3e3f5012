//! The consequences of a commit in this process: answers, wake-ups, runs, and cached snapshots.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::commit::outcome::{ChangedInstance, Run};
use fsm_store::claim::Claimed;
use fsm_store::error::StoreError;

use super::environment::CommitOutcome;
use super::request::Request;
use super::{commit_log, commit_metrics};
use crate::engine::Engine;
use crate::guard;
use crate::supervise;

impl Engine {
    /// Carries out the consequences of a commit: sends the answers, starts the calls that may run here, and wakes the tasks that wait.
    pub(crate) fn conclude(self: &Arc<Self>, batch: Vec<Request>, commit_outcomes: Vec<CommitOutcome>) {
        for (request, commit_outcome) in batch.into_iter().zip(commit_outcomes) {
            // A panic for one request does not prevent the answers to the others.
            if let Err(text) = guard::guarded("what follows a commit", || self.conclude_one(request, commit_outcome)) {
                supervise::log_panic("committer", &text);
            }
        }
    }

    fn conclude_one(self: &Arc<Self>, mut request: Request, commit_outcome: CommitOutcome) {
        commit_log::log(&request, &commit_outcome, &self.data_protection);
        commit_metrics::count(&request, &commit_outcome, &self.catalog);
        if let Some(InstanceKey { machine, key, .. }) = commit_outcome.locked.first() {
            let error = Arc::new(StoreError::Locked { machine: machine.to_string(), key: key.to_string() });
            self.note_unreported(&request, &error);
            return self.queue.put_back(request, &commit_outcome.locked, &error);
        }
        let Some(reply) = commit_outcome.reply else {
            let request = if commit_outcome.is_stale { request.stale() } else { request.again() };
            self.queue.put_again(request, Duration::ZERO);
            return;
        };
        self.watchers.announce(&commit_outcome.moved, &commit_outcome.runs);
        if commit_outcome.has_line {
            self.has_line.notify_one();
        }
        if commit_outcome.has_event_elsewhere {
            self.has_event_elsewhere.notify_one();
        }
        if let Some(due_at) = commit_outcome.due_at {
            self.wake_up.due(due_at);
            self.permit_state.has_waiting.notify_one();
            self.notify(due_at);
        }
        for target in &commit_outcome.interrupted {
            self.cancel_running(target);
            self.notify_interrupt();
        }
        self.note_families(&commit_outcome.moved, &commit_outcome.families);
        for Run { target, instance, attempt, payload, trace, slot } in commit_outcome.runs {
            // Only a first attempt is handed off.
            let claimed = Claimed { instance, attempt, payload, last_error: None, seen: None, policy_error: None, trace };
            let slot = slot.or_else(|| request.take_permit());
            self.run(target, claimed, slot);
        }
        commit_outcome.moved.iter().for_each(|moved| self.remember(moved));
        request.answer(reply);
    }

    /// Caches the snapshot that a commit left of an instance if the next request for it is likely to come to this process.
    fn remember(&self, moved: &ChangedInstance) {
        let is_running = |newest| self.work.as_ref().is_some_and(|work| work.running().contains_key(&newest));
        self.snapshot_cache.put(&moved.target, moved.cached(|| moved.instance.newest.is_some_and(is_running)));
    }
}

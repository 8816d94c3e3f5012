//! The batch snapshot: the snapshots of all instances of a batch, mirroring `committer/batch_snapshot.rs`.

use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::InstanceSnapshot;
use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;

use super::Model;
use super::queue::{BatchCommit, KEYS, Request, RequestKind, Seen};
use super::variant::Variant;

/// The number of waiting events that are read at first.
const FIRST: i64 = 1;

impl Model {
    /// Returns the snapshot of an instance of which only the row is known.
    pub fn snapshot(&mut self, key: usize, seen: Option<Seen>, now: Timestamp) -> InstanceSnapshot {
        match seen {
            Some(Seen { instance, has_timer, .. }) => InstanceSnapshot { has_timer, ..InstanceSnapshot::of(instance) },
            None => {
                let instance = Instance::new(InstanceId(self.fresh()), &self.machine.name, KEYS[key], now);
                InstanceSnapshot { is_new: true, ..InstanceSnapshot::of(instance) }
            }
        }
    }

    /// `BatchSnapshot::read_rest`, without the check for repeated sends.
    pub fn read_rest(&self, snapshot: &mut InstanceSnapshot, request: Option<&Request>) {
        let newest = snapshot.instance.newest;
        let is_operated = matches!(request, Some(Request { kind: RequestKind::Operate(_), .. }));
        match request.map(|request| &request.kind) {
            Some(RequestKind::Complete(report)) if newest == Some((report.attempt.call, report.attempt.number)) => {
                snapshot.newest = Some(report.attempt.clone().into());
            }
            _ if snapshot.instance.is_open || snapshot.instance.status == Status::Error || is_operated => {
                snapshot.newest = newest.and_then(|id| self.store.attempt(id)).cloned().map(Arc::new);
            }
            _ => {}
        }
        if let Some(caught) = snapshot.newest.as_ref().filter(|newest| newest.is_catch() && is_operated).and_then(|newest| newest.previous)
        {
            snapshot.caught = self.store.last_attempt(caught).cloned();
        }
        snapshot.inbox = self.store.inbox(&snapshot.instance, FIRST);
        if let Some(RequestKind::Fire(fired)) = request.map(|request| &request.kind) {
            let mut others = self.store.timers.values().filter(|(timer, _)| timer.id != fired.id);
            snapshot.awaits_others = others.any(|(timer, _)| timer.instance == snapshot.instance.id);
        }
        let dedup = match request.map(|request| &request.kind) {
            Some(RequestKind::Send(_)) if self.variant == Variant::DedupWithoutLooking => None,
            Some(RequestKind::Send(send)) => send.dedup.as_ref().map(|dedup| dedup.id.clone()),
            Some(RequestKind::Operate(operation)) => operation.request.as_ref().map(|(id, _)| id.clone()),
            _ => None,
        };
        snapshot.request = dedup.and_then(|id| self.store.requests.get(&(snapshot.instance.id, id))).cloned();
    }
}

impl BatchCommit {
    pub fn snapshot(&self, key: usize) -> &InstanceSnapshot {
        self.batch_snapshot.snapshots[key].as_ref().expect("the batch_snapshot was read for every instance of the batch")
    }

    /// `BatchSnapshot::apply`.
    pub fn apply(&mut self, key: usize, changes: &Changes) {
        let snapshot = self.batch_snapshot.snapshots[key].as_mut().expect("the batch_snapshot was read for every instance of the batch");
        snapshot.apply(changes.clone());
    }
}

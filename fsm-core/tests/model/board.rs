//! The batch snapshot: the snapshots of all instances of a batch, mirroring `committer/board.rs`.

use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::Standing;
use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;

use super::Model;
use super::queue::{KEYS, Request, Seen, Trip, What};
use super::variant::Variant;

/// The number of waiting events that are read at first.
const FIRST: i64 = 1;

impl Model {
    /// Returns the snapshot of an instance of which only the row is known.
    pub fn standing(&mut self, key: usize, seen: Option<Seen>, now: Timestamp) -> Standing {
        match seen {
            Some(Seen { instance, has_timer, .. }) => Standing { has_timer, ..Standing::of(instance) },
            None => {
                let instance = Instance::new(InstanceId(self.fresh()), &self.machine.name, KEYS[key], now);
                Standing { is_new: true, ..Standing::of(instance) }
            }
        }
    }

    /// `Board::read_rest`, without the check for repeated sends.
    pub fn read_rest(&self, standing: &mut Standing, request: Option<&Request>) {
        let newest = standing.instance.newest;
        let is_operated = matches!(request, Some(Request { what: What::Operate(_), .. }));
        match request.map(|request| &request.what) {
            Some(What::Settle(report)) if newest == Some((report.attempt.call, report.attempt.number)) => {
                standing.newest = Some(report.attempt.clone().into());
            }
            _ if standing.instance.is_open || standing.instance.status == Status::Error || is_operated => {
                standing.newest = newest.and_then(|id| self.store.attempt(id)).cloned().map(Arc::new);
            }
            _ => {}
        }
        if let Some(caught) = standing.newest.as_ref().filter(|newest| newest.is_catch() && is_operated).and_then(|newest| newest.previous)
        {
            standing.caught = self.store.last_attempt(caught).cloned();
        }
        standing.inbox = self.store.inbox(&standing.instance, FIRST);
        if let Some(What::Fire(fired)) = request.map(|request| &request.what) {
            let mut others = self.store.timers.values().filter(|(timer, _)| timer.id != fired.id);
            standing.awaits_others = others.any(|(timer, _)| timer.instance == standing.instance.id);
        }
        let dedup = match request.map(|request| &request.what) {
            Some(What::Send(_)) if self.variant == Variant::DedupWithoutLooking => None,
            Some(What::Send(send)) => send.dedup.as_ref().map(|dedup| dedup.id.clone()),
            Some(What::Operate(operation)) => operation.request.as_ref().map(|(id, _)| id.clone()),
            _ => None,
        };
        standing.request = dedup.and_then(|id| self.store.requests.get(&(standing.instance.id, id))).cloned();
    }
}

impl Trip {
    pub fn standing(&self, key: usize) -> &Standing {
        self.board.standings[key].as_ref().expect("the board was read for every instance of the batch")
    }

    /// `Board::apply`.
    pub fn apply(&mut self, key: usize, changes: &Changes) {
        let standing = self.board.standings[key].as_mut().expect("the board was read for every instance of the batch");
        standing.apply(changes.clone());
    }
}

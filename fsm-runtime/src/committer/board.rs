//! What is known of the instances that a batch concerns, read under their locks and kept up to date while it is decided.

use std::collections::HashMap;

use fsm_core::changes::{Changes, Waiting};
use fsm_core::decide::Standing;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::queue::{Request, What, Whose, touched};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::lock::{self, KnownCall, Target};

/// The standings of a batch.
pub(crate) struct Board {
    standings: HashMap<Whose, Standing>,
    /// Whose each of them is.
    names: HashMap<InstanceId, Whose>,
    known: HashMap<CallId, KnownCall>,
}

impl Board {
    /// Locks and reads every instance that the batch may write, and beside it only what its requests need.
    pub(crate) async fn read(conn: &mut Conn<'_>, batch: &[Request], now: Timestamp) -> Result<Board, StoreError> {
        let mut all = touched(batch);
        all.sort();
        all.dedup();
        let targets: Vec<_> = all.iter().map(|whose| Target { machine: &whose.machine, key: &whose.key }).collect();
        let found = lock::instances(conn, &targets).await?;
        let standings = all.into_iter().zip(found).map(|(whose, instance)| {
            let is_new = instance.is_none();
            let instance = instance.unwrap_or_else(|| Instance::new(InstanceId(Uuid::now_v7()), &whose.machine, &whose.key, now));
            (whose, Standing { is_new, ..Standing::of(instance) })
        });
        let standings: HashMap<_, _> = standings.collect();
        let names = standings.iter().map(|(whose, standing)| (standing.instance.id, whose.clone())).collect();
        let mut board = Board { standings, names, known: HashMap::new() };
        board.read_attempts(conn, batch).await?;
        board.read_inboxes(conn).await?;
        board.read_requests(conn, batch).await?;
        board.read_known(conn, batch).await?;
        Ok(board)
    }

    pub(crate) fn standing(&self, whose: &Whose) -> &Standing {
        self.standings.get(whose).expect("the board was read for every instance of the batch")
    }

    /// Where a repeated send's call is already.
    pub(crate) fn known(&self, call: CallId) -> Option<&KnownCall> {
        self.known.get(&call)
    }

    /// What was decided and written becomes what is known.
    pub(crate) fn apply(&mut self, whose: &Whose, changes: &Changes) {
        let standing = self.standings.get_mut(whose).expect("the board was read for every instance of the batch");
        standing.instance = changes.instance.clone();
        standing.is_new = false;
        if let Some(open) = &changes.open {
            standing.newest = Some(open.attempt.clone());
        }
        if let Some(through) = changes.inbox_through {
            standing.inbox.retain(|waiting| waiting.position >= through);
        }
        if let Some(waits) = &changes.waits {
            standing.inbox.push(Waiting { position: waits.position, call: waits.call, event: waits.event.name.clone() });
        }
    }

    /// The newest attempt matters where it is live or exhausted. A report brings its own, and needs no other.
    async fn read_attempts(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            if let What::Settle(report) = &request.what {
                let standing = self.standings.get_mut(&request.whose).expect("the board was read for every instance of the batch");
                if standing.instance.newest == Some((report.attempt.call, report.attempt.number)) {
                    standing.newest = Some((*report.attempt).clone());
                }
            }
        }
        let matters = |standing: &&mut Standing| {
            standing.newest.is_none() && (standing.instance.is_open || standing.instance.status == Status::Error)
        };
        let operated: Vec<_> = batch.iter().filter(|request| matches!(request.what, What::Operate(_))).map(|r| &r.whose).collect();
        let wanted: Vec<_> = self
            .standings
            .iter_mut()
            .filter(|(whose, standing)| matters(standing) || operated.contains(whose))
            .filter_map(|(_, standing)| standing.instance.newest)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for attempt in lock::attempts(conn, &wanted).await? {
            if let Some(standing) = self.by_id(attempt.instance) {
                standing.newest = Some(attempt);
            }
        }
        self.read_caught(conn, &operated).await
    }

    /// An operator may run a caught call again.
    async fn read_caught(&mut self, conn: &mut Conn<'_>, operated: &[&Whose]) -> Result<(), StoreError> {
        let caught = |standing: &Standing| standing.newest.as_ref().filter(|newest| newest.is_catch()).and_then(|newest| newest.previous);
        let wanted: Vec<_> = operated.iter().filter_map(|whose| caught(self.standing(whose))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for attempt in lock::last_attempts(conn, &wanted).await? {
            if let Some(standing) = self.by_id(attempt.instance) {
                standing.caught = Some(attempt);
            }
        }
        Ok(())
    }

    async fn read_inboxes(&mut self, conn: &mut Conn<'_>) -> Result<(), StoreError> {
        let waiting = self.standings.values().filter(|standing| standing.instance.inbox_len() > 0);
        let ids: Vec<_> = waiting.map(|standing| standing.instance.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        for (instance, waiting) in lock::inbox(conn, &ids).await? {
            if let Some(standing) = self.by_id(instance) {
                standing.inbox.push(waiting);
            }
        }
        Ok(())
    }

    async fn read_requests(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        let asked: Vec<(InstanceId, &str)> = batch
            .iter()
            .filter_map(|request| match &request.what {
                What::Send(send) => Some((self.standing(&request.whose).instance.id, send.dedup.as_ref()?.id.as_str())),
                What::Operate(operation) => Some((self.standing(&request.whose).instance.id, operation.request.as_ref()?.0.as_str())),
                _ => None,
            })
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        for (instance, request) in lock::requests(conn, &asked).await? {
            if let Some(standing) = self.by_id(instance) {
                standing.request = Some(request);
            }
        }
        Ok(())
    }

    /// After a commit whose answer was lost, a send looks for itself before it is decided again.
    async fn read_known(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        let repeated: Vec<_> = batch
            .iter()
            .filter(|request| request.tries > 0)
            .filter_map(|request| match &request.what {
                What::Send(send) => Some(send.id),
                _ => None,
            })
            .collect();
        if !repeated.is_empty() {
            self.known = lock::known(conn, &repeated).await?.into_iter().map(|known| (known.call, known)).collect();
        }
        Ok(())
    }

    fn by_id(&mut self, id: InstanceId) -> Option<&mut Standing> {
        self.standings.get_mut(self.names.get(&id)?)
    }
}

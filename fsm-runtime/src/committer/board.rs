//! What is known of the instances that a batch concerns, read under their locks and kept up to date while it is decided.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fsm_core::changes::Changes;
use fsm_core::decide::Standing;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::request::{Request, What, Whose, touched};
use crate::store::conn::Conn;
use crate::store::epoch::Epoch;
use crate::store::error::StoreError;
use crate::store::lock::{self, KnownCall, Locked, Seen, Target};
use crate::store::timers;
use crate::store::write::Stamp;

/// How many of an instance's waiting events are read at first: the first one fits nearly always.
const FIRST: i64 = 8;
/// How many times as many are read next if they do not suffice.
const FURTHER: i64 = 8;

/// The standings of a batch.
pub(crate) struct Board {
    standings: HashMap<Whose, Standing>,
    /// Whose each of them is.
    names: HashMap<InstanceId, Whose>,
    known: HashMap<CallId, KnownCall>,
    /// Which commit left each of them as it is, where none is locked.
    stamps: HashMap<InstanceId, Stamp>,
    /// Those that somebody else has locked: nothing is known of them.
    locked: HashSet<Whose>,
}

/// How an instance is read that somebody else has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locks {
    /// Once its lock is free.
    AreWaitedFor,
    /// Not at all: its requests are left out.
    ArePassedOver,
}

impl Board {
    /// Locks and reads every instance that the batch may write, and beside it only what its requests need.
    pub(crate) async fn read(conn: &mut Conn<'_>, batch: &[Request], now: Timestamp, locks: Locks) -> Result<Board, StoreError> {
        let mut all = touched(batch);
        all.sort();
        all.dedup();
        let (found, locked) = match locks {
            Locks::AreWaitedFor => (lock::instances(conn, &targets(&all)).await?, Vec::new()),
            Locks::ArePassedOver => lock::free_instances(conn, &targets(&all)).await?,
        };
        let locked = locked.into_iter().map(|place| all[place].clone()).collect();
        let standings = all.into_iter().zip(found).map(|(whose, locked)| {
            let standing = locked.map(|Locked { instance, has_timer }| Standing { has_timer, ..Standing::of(instance) });
            (whose.clone(), standing.unwrap_or_else(|| new(&whose, now)))
        });
        let mut board = Board { locked, ..Board::of(standings.collect(), HashMap::new()) };
        board.read_rest(conn, batch).await?;
        Ok(board)
    }

    /// The same without a lock, and if it `remembers`, without a look at those that were seen here last. Nobody has changed them meanwhile if
    /// their stamps are the same when it is written; with SQLite, if that epoch still lasts.
    pub(crate) async fn see(
        conn: &mut Conn<'_>,
        batch: &[Request],
        now: Timestamp,
        epoch: Option<Epoch>,
        remembers: bool,
    ) -> Result<Board, StoreError> {
        let (mut all, mut unseen) = (Vec::with_capacity(batch.len()), Vec::new());
        for request in batch {
            match request.seen(epoch).filter(|_| remembers) {
                Some(seen) => all.push((request.whose.clone(), Some(seen.clone()))),
                None => unseen.push(request.whose.clone()),
            }
        }
        let found = if unseen.is_empty() { Vec::new() } else { lock::see(conn, &targets(&unseen), epoch).await? };
        all.extend(unseen.into_iter().zip(found));
        let stamps = all.iter().filter_map(|(_, seen)| seen.as_ref().map(|seen| (seen.instance.id, seen.stamp))).collect();
        let standings = all.into_iter().map(|(whose, seen)| {
            let standing = seen.map(|Seen { instance, has_timer, .. }| Standing { has_timer, ..Standing::of(instance) });
            (whose.clone(), standing.unwrap_or_else(|| new(&whose, now)))
        });
        let mut board = Board::of(standings.collect(), stamps);
        board.read_rest(conn, batch).await?;
        Ok(board)
    }

    fn of(standings: HashMap<Whose, Standing>, stamps: HashMap<InstanceId, Stamp>) -> Board {
        let names = standings.iter().map(|(whose, standing)| (standing.instance.id, whose.clone())).collect();
        Board { standings, names, known: HashMap::new(), stamps, locked: HashSet::new() }
    }

    async fn read_rest(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        self.read_attempts(conn, batch).await?;
        self.read_inboxes(conn).await?;
        self.read_requests(conn, batch).await?;
        self.read_awaited(conn, batch).await?;
        self.read_known(conn, batch).await
    }

    /// Which commit left the instance as it was seen; `None` for one that is new.
    pub(crate) fn stamp(&self, instance: InstanceId) -> Option<Stamp> {
        self.stamps.get(&instance).copied()
    }

    /// Those instances of the request that somebody else has locked: it is left out.
    pub(crate) fn locked(&self, request: &Request) -> Vec<Whose> {
        // Most often there is none.
        if self.locked.is_empty() {
            Vec::new()
        } else {
            request.touches().into_iter().filter(|whose| self.locked.contains(whose)).collect()
        }
    }

    pub(crate) fn standing(&self, whose: &Whose) -> &Standing {
        self.standings.get(whose).expect("the board was read for every instance of the batch")
    }

    /// Where a repeated send's call is already.
    pub(crate) fn known(&self, call: CallId) -> Option<&KnownCall> {
        self.known.get(&call)
    }

    /// What was decided and written becomes what is known.
    pub(crate) fn apply(&mut self, whose: &Whose, changes: Changes) {
        self.standings.get_mut(whose).expect("the board was read for every instance of the batch").apply(changes);
    }

    /// Whose instance it is.
    pub(crate) fn name(&self, instance: InstanceId) -> &Whose {
        self.names.get(&instance).expect("the board was read for every instance of the batch")
    }

    /// Reads more of an inbox whose first events did not suffice.
    pub(crate) async fn read_on(&mut self, conn: &mut Conn<'_>, whose: &Whose) -> Result<(), StoreError> {
        let standing = self.standings.get_mut(whose).expect("the board was read for every instance of the batch");
        let most = (standing.inbox.first.len() as i64).max(FIRST) * FURTHER;
        let more = lock::inbox(conn, &[&standing.instance], most).await?;
        if more.len() <= standing.inbox.first.len() {
            let what = format!("instance {} has fewer events waiting than it counts", standing.instance.id);
            return Err(StoreError::Corrupt { what });
        }
        standing.inbox.first = more.into_iter().map(|(_, waiting)| waiting).collect();
        Ok(())
    }

    /// The newest attempt matters where it is live or exhausted. A report brings its own, and needs no other.
    async fn read_attempts(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            if let What::Settle(report) = &request.what {
                let standing = self.standings.get_mut(&request.whose).expect("the board was read for every instance of the batch");
                if standing.instance.newest == Some((report.attempt.call, report.attempt.number)) {
                    standing.newest = Some(Arc::clone(&report.attempt));
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
                standing.newest = Some(Arc::new(attempt));
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
        let waiting: Vec<_> =
            self.standings.values().map(|standing| &*standing.instance).filter(|instance| instance.inbox_len() > 0).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        for (instance, inbox) in lock::inbox_ends(conn, &waiting, FIRST).await? {
            if let Some(standing) = self.by_id(instance) {
                standing.inbox = inbox;
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

    /// An instance that has not begun ends with the last delayed event if that does not fit.
    async fn read_awaited(&mut self, conn: &mut Conn<'_>, batch: &[Request]) -> Result<(), StoreError> {
        for request in batch {
            let What::Fire(fired) = &request.what else { continue };
            let standing = self.standings.get_mut(&request.whose).expect("the board was read for every instance of the batch");
            if standing.instance.has_not_begun() {
                standing.awaits_others = timers::has_another(conn, standing.instance.id, fired.timer.id).await?;
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

fn targets(all: &[Whose]) -> Vec<Target<'_>> {
    all.iter().map(|whose| Target { machine: &whose.machine, key: &whose.key }).collect()
}

fn new(whose: &Whose, now: Timestamp) -> Standing {
    let instance = Instance::new(InstanceId(Uuid::now_v7()), &whose.machine, &whose.key, now);
    Standing { is_new: true, ..Standing::of(instance) }
}

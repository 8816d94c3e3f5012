//! The reconciler: corrects rows that older code writes while it still runs beside this code. It renames mapped names, sets timers that the
//! older code lacks, and fills in search fields that it lacks.
//!
//! Each run reads every instance of a machine once, so the interval between runs grows. A deployment takes minutes, but a process with the
//! old code may run on for days.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fsm_core::changes::Changes;
use fsm_core::commit::rows::Target;
use fsm_core::decide::migrate::{Renames, late_timer};
use fsm_core::ids::{CallId, InstanceId, TimerId};
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::{Due, Machine, TIMEOUT};
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::drift::{self as rows, Page};
use fsm_store::error::StoreError;
use fsm_store::lock;
use fsm_store::open::Store;
use fsm_store::write::write;
use fsm_store::{machines, timers};
use uuid::Uuid;

use crate::catalog::KnownMachine;
use crate::clock::Clock;
use crate::data_protection::{DataProtection, Owner};
use crate::drift;
use crate::encode;
use crate::engine::Engine;
use crate::error::Error;
use crate::search;

/// The interval of the checks.
const PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of instances or timers that one transaction corrects.
const AT_A_TIME: u32 = 100;
/// The number of calls that are read back to find the one that entered a state.
const FURTHEST: usize = 100;

impl Engine {
    /// Checks once a minute whether a run is due.
    pub(crate) async fn reconcile_loop(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.reconcile().await
                && !self.outage.reports(&error)
            {
                tracing::warn!(%error, "rows that other code wrote cannot be corrected, and this is tried again");
            }
        }
    }

    /// Corrects the rows that other code wrote since the last run if a run is due, and deletes timers that the code no longer has. Returns
    /// the number of corrections.
    pub(crate) async fn reconcile(&self) -> Result<usize, Error> {
        let Some(work) = &self.work else { return Ok(0) };
        // This wait has no limit of its own: only another run holds the lock, and each operation of a run has a limit.
        let mut reconciler_state = work.reconciler_state.lock().await;
        let (mut corrected, mut failed) = (0, None);
        let begun = self.clock.now();
        let is_time = reconciler_state.is_time(begun);
        for known in self.catalog.iter() {
            let renames = reconciler_state.renames(&known.machine.name).filter(|_| is_time);
            let since = is_time.then(|| reconciler_state.looked_at());
            match self.reconcile_machine(known, renames, since).await {
                Ok(count) => corrected += count,
                // The error does not affect other machines. This machine is checked again in a minute.
                Err(error) => {
                    if !self.outage.reports(&error) {
                        tracing::warn!(machine = known.machine.name, %error, "rows of a machine that other code wrote cannot be corrected");
                    }
                    failed = Some(error);
                }
            }
        }
        if is_time && failed.is_none() {
            reconciler_state.looked(begun);
        }
        failed.map_or(Ok(corrected), Err)
    }

    async fn reconcile_machine(&self, known: &KnownMachine, renames: Option<&Renames>, since: Option<Timestamp>) -> Result<usize, Error> {
        let (machine, mut corrected) = (&*known.machine, 0);
        if let Some(renames) = renames {
            corrected += drift::apply(&self.store, &self.clock, machine, renames).await?;
        }
        if let Some(since) = since {
            corrected += set_timers(&self.store, &self.clock, known, renames, &self.data_protection).await?;
            corrected += search::follow(&self.store, known, &self.data_protection, since).await?;
        }
        Ok(corrected + self.drop_timers(machine).await?)
    }

    /// Deletes due timers of states that have no timer, if this definition is the newest. Older code leaves such timers alone.
    async fn drop_timers(&self, machine: &Machine) -> Result<usize, Error> {
        let untimed: Vec<_> = machine.states().filter(|state| machine.timer(state).is_none()).map(str::to_owned).collect();
        let (mut after, mut dropped) = ((TimerId(Uuid::nil()), Timestamp::from_micros(i64::MIN)), 0);
        loop {
            let over = {
                let mut reader = self.store.reader().await?;
                let over = timers::over(&mut reader.conn(), &machine.name, &untimed, self.clock.now(), AT_A_TIME, after).await?;
                if over.is_empty() || !is_newest(&mut reader.conn(), machine).await? {
                    break;
                }
                over
            };
            after = over.last().copied().unwrap_or(after);
            let count = drift::each_if_not_all(
                &over,
                |some| self.drop_some(&over[some]),
                |(timer, due_at), error| {
                    tracing::warn!(machine = machine.name, timer = %timer.0, %due_at, %error,
                    "a timer of a state that has none any more cannot be dropped; the others are");
                },
            );
            dropped += count.await?;
        }
        if dropped > 0 {
            tracing::info!(machine = machine.name, timers = dropped, "dropped timers of states that have none any more");
        }
        Ok(dropped)
    }

    /// Deletes these timers in one transaction. Returns their number.
    async fn drop_some(&self, some: &[(TimerId, Timestamp)]) -> Result<usize, StoreError> {
        let timers: Vec<_> = some.iter().map(|(timer, _)| *timer).collect();
        let mut tx = self.store.begin().await?;
        timers::delete(&mut tx.conn(), &timers).await?;
        tx.commit().await.map(|()| timers.len())
    }
}

/// True if no other definition of the machine was started later.
async fn is_newest(conn: &mut Conn<'_>, machine: &Machine) -> Result<bool, Error> {
    let (_, hash) = encode::definition(machine)?;
    let later = machines::definitions(conn, &machine.name).await?.into_iter().skip_while(|known| known.hash != hash).skip(1);
    Ok(later.count() == 0)
}

/// Sets missing timers for instances whose state was entered by code without these timers. Does nothing if there is a newer definition.
/// Returns the number of timers.
///
/// A state is left out if every stored definition has its timer, because then each instance that rests in it has one. A mapping may lead to the
/// state from one without a timer.
pub(crate) async fn set_timers(
    store: &Store,
    clock: &Clock,
    known: &KnownMachine,
    renames: Option<&Renames>,
    data_protection: &DataProtection,
) -> Result<usize, Error> {
    let machine = &*known.machine;
    let timed = {
        let known = drift::definitions(&mut store.reader().await?.conn(), &machine.name).await?;
        let lacks = |state: &str| {
            let is_lacking = |other: &Machine| other.states().any(|known| known == state) && other.timer(state).is_none();
            known.as_ref().is_none_or(|known| known.iter().any(is_lacking))
                || renames.is_some_and(|renames| renames.states.values().any(|new| new == state))
        };
        machine.states().filter(|state| machine.timer(state).is_some() && lacks(state)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut after, mut set) = (Some(InstanceId(Uuid::nil())).filter(|_| !timed.is_empty()), 0);
    while let Some(from) = after {
        let Page { found, next } = {
            let mut reader = store.reader().await?;
            let page = rows::timerless(&mut reader.conn(), &machine.name, &timed, from, AT_A_TIME).await?;
            if !page.found.is_empty() && !is_newest(&mut reader.conn(), machine).await? {
                break;
            }
            page
        };
        let set_some = |some| set_some(store, clock, (known, data_protection), &found[some]);
        let count = drift::each_if_not_all(&found, set_some, |(_, key), error| {
            tracing::warn!(machine = machine.name, key, %error, "the timer of an instance cannot be set; the others are");
        });
        set += count.await?;
        after = next;
    }
    Ok(set)
}

/// Sets the timers of these instances in one transaction. Returns the number of timers.
async fn set_some(
    store: &Store,
    clock: &Clock,
    of: (&KnownMachine, &DataProtection),
    found: &[(InstanceId, String)],
) -> Result<usize, StoreError> {
    let mut tx = store.begin().await?;
    let changes = late_timers(&mut tx.conn(), clock.now(), of, found).await?;
    write(&mut tx.conn(), &changes.iter().collect::<Vec<_>>()).await?;
    tx.commit().await?;
    Ok(changes.len())
}

/// The changes that set the timers of those instances that still have none.
async fn late_timers(
    conn: &mut Conn<'_>,
    now: Timestamp,
    (known, data_protection): (&KnownMachine, &DataProtection),
    found: &[(InstanceId, String)],
) -> Result<Vec<Changes>, StoreError> {
    let machine = &*known.machine;
    let targets: Vec<_> = found.iter().map(|(_, key)| Target { machine: &machine.name, key }).collect();
    let locked: Vec<_> = lock::instances(conn, &targets).await?.into_iter().flatten().map(|locked| locked.instance).collect();
    let ids: Vec<_> = locked.iter().map(|instance| instance.id).collect();
    let has_timer: HashSet<_> = rows::timers(conn, &ids)
        .await?
        .into_iter()
        .filter(|timer| timer.state.is_some() && timer.event.name == TIMEOUT)
        .map(|timer| timer.instance)
        .collect();
    let rests = |instance: &Instance| !instance.is_open && matches!(instance.status, Status::Running | Status::Error);
    let resting: Vec<_> = locked.into_iter().filter(|instance| rests(instance) && !has_timer.contains(&instance.id)).collect();
    let entered = entered(conn, &resting).await?;
    let late = resting.iter().filter_map(|instance| match entered.get(&instance.id) {
        Some(Entered::AndRanOut) => None,
        Some(Entered::By(call, at)) => late_timer(machine, instance, Some((*call, *at)), computed(known, data_protection, instance), now),
        None => late_timer(machine, instance, None, computed(known, data_protection, instance), now),
    });
    Ok(late.collect())
}

/// The result of the function of the timer, from the record as it is now; `None` if the timer has no function, or if that cannot be called.
fn computed(known: &KnownMachine, data_protection: &DataProtection, instance: &Instance) -> Option<Due> {
    let state = instance.state.as_deref()?;
    let record = instance.record.as_ref().map(|record| data_protection.open(&Owner::of(instance).record(), record)).transpose();
    let due = match &record {
        Ok(record) => known.timer_of(state, record.as_deref()).map_err(|failure| failure.to_string()),
        Err(why) => Err(format!("the record cannot be read: {why}")),
    };
    due.unwrap_or_else(|error| {
        tracing::warn!(machine = instance.machine, key = instance.key, state, error, "the timer of an instance cannot be computed");
        None
    })
}

/// The way in which an instance entered its state.
enum Entered {
    /// By this call, at this time.
    By(CallId, Timestamp),
    /// In any way. Its timer has run out since then, and fires once.
    AndRanOut,
}

/// Finds how each instance entered its state, as far as its history is kept.
async fn entered(conn: &mut Conn<'_>, instances: &[Instance]) -> Result<HashMap<InstanceId, Entered>, StoreError> {
    let mut entered = HashMap::new();
    let mut calls: Vec<CallId> = instances.iter().filter_map(|instance| instance.newest).map(|(call, _)| call).collect();
    for _ in 0..FURTHEST {
        if calls.is_empty() {
            break;
        }
        for last in lock::last_attempts(conn, &calls).await? {
            if last.state == fsm_core::call::AttemptState::Success && !last.is_catch() && !last.is_stay() {
                calls.retain(|call| *call != last.call);
                let at = last.finished_at.unwrap_or(last.created_at);
                entered.insert(last.instance, Entered::By(last.call, at));
            } else if last.event == TIMEOUT {
                calls.retain(|call| *call != last.call);
                entered.insert(last.instance, Entered::AndRanOut);
            }
        }
        let firsts: Vec<_> = calls.iter().map(|call| (*call, 1)).collect();
        calls = lock::attempts(conn, &firsts).await?.into_iter().filter_map(|first| first.previous).collect();
    }
    Ok(entered)
}

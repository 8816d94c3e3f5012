//! The pruner: deletes ended instances and the old history of live ones after the retention time, in small transactions.

mod ended;
mod long;
mod past;
mod step_size;
#[cfg(all(test, feature = "testing"))]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::error::StoreError;
use fsm_store::open::Store;
use fsm_store::prune::{AttemptPlace, OncePlace, RequestPlace};
use uuid::Uuid;

use crate::engine::Engine;
use crate::error::Error;
use step_size::StepSize;

/// The wait before the first run. It is short, so that a program that is restarted every minute deletes too.
const FIRST: Duration = Duration::from_secs(10);
/// The interval between two runs.
const PAUSE: Duration = Duration::from_secs(60);
/// The number of consecutive reads without a row to delete after which a run stops.
const IN_VAIN: u32 = 40;

/// The position of the pruner in each table, and its step size.
#[derive(Debug, Clone)]
pub(crate) struct PrunerPosition {
    /// The last ended instance of each machine that was read.
    ended: BTreeMap<String, InstanceId>,
    attempts: AttemptPlace,
    notes: i64,
    requests: RequestPlace,
    once: OncePlace,
    step_size: StepSize,
}

impl Default for PrunerPosition {
    fn default() -> PrunerPosition {
        let nil = Uuid::nil();
        PrunerPosition {
            ended: BTreeMap::new(),
            attempts: (CallId(nil), 0),
            notes: 0,
            requests: (InstanceId(nil), String::new()),
            once: (CallId(nil), String::new()),
            step_size: StepSize::default(),
        }
    }
}

impl Engine {
    /// Runs the pruner soon after the start, and then once a minute.
    pub(crate) async fn prune_loop(self: Arc<Self>) {
        let (mut place, mut wait) = (PrunerPosition::default(), FIRST);
        loop {
            tokio::time::sleep(std::mem::replace(&mut wait, PAUSE)).await;
            if let Err(error) = self.prune(&mut place).await
                && !self.outage.reports(&error)
            {
                tracing::warn!(%error, "deleting what is older than the retention failed and is tried again");
            }
        }
    }

    /// Deletes old rows, continuing at `place`. One run does not delete all of them. Returns the number of deleted rows, or a larger number.
    pub(crate) async fn prune(&self, place: &mut PrunerPosition) -> Result<usize, Error> {
        let Some((work, retention)) = self.work.as_ref().and_then(|work| Some((work, work.retention?))) else { return Ok(0) };
        let machines: Vec<_> = work.served.iter().map(|served| served.machine.as_str()).collect();
        let pruner = Pruner { store: &self.store, cutoff: self.clock.now() - retention };
        Ok(pruner.prune(place, &machines).await?)
    }
}

/// Deletes rows that are older than the cutoff. Each step is one transaction of few rows and leaves the database consistent. After a crash,
/// the next process finds the remaining rows.
#[derive(Clone, Copy)]
pub(super) struct Pruner<'s> {
    store: &'s Store,
    cutoff: Timestamp,
}

impl Pruner<'_> {
    async fn prune(self, place: &mut PrunerPosition, machines: &[&str]) -> Result<usize, StoreError> {
        let mut pruned = 0;
        for machine in machines {
            let mut after = place.ended.remove(*machine).unwrap_or(InstanceId(Uuid::nil()));
            let done = self.prune_ended(machine, &mut after, &mut place.step_size).await;
            place.ended.insert((*machine).to_owned(), after);
            pruned += done?;
        }
        Ok(pruned + self.prune_past(place, machines).await?)
    }

    /// Runs one deleting transaction. The pause before the next one is three times as long, so that other writers can work.
    async fn step<T>(
        self,
        step_size: &mut StepSize,
        work: impl AsyncFnOnce(&mut Conn<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        tokio::time::sleep_until(step_size.next_step()).await;
        let mut tx = self.store.begin().await?;
        let began = tokio::time::Instant::now();
        let done = work(&mut tx.conn()).await?;
        tx.commit().await?;
        tracing::debug!(took_us = began.elapsed().as_micros(), most_rows = step_size.rows(), "a step of pruning");
        step_size.took(began, self.store.is_postgres());
        Ok(done)
    }
}

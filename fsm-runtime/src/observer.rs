//! Observes the database from time to time, for [`Runtime::health`](crate::runtime::Runtime::health) and for the gauges of the metrics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fsm_core::time::Timestamp;

use crate::engine::Engine;
use crate::error::Error;
use crate::guard;
use crate::health::{DatabaseHealth, MigrationHealth};
use crate::metrics::{self, Backlog, Sizes};
use crate::store::conn::Conn;
use crate::store::error::StoreError;
use crate::store::{limits, migrate, outbox, overview, view, workers};

/// The pause between two observations.
const PAUSE: Duration = Duration::from_secs(5);
/// An observation that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(5);
/// One observation in so many counts instances and waiting events too, which reads more rows.
const COUNTED_EVERY: u32 = 6;
/// No gauge counts further.
const MOST: u32 = 10_000;

/// The result of the last observation.
#[derive(Default)]
pub(crate) struct Observations(Mutex<Observed>);

/// What an observation found.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) database: DatabaseHealth,
    pub(crate) migrations: MigrationHealth,
    /// How long the oldest due call has waited.
    pub(crate) lag: Duration,
}

impl Default for Observed {
    /// Before the first observation: a runtime starts only on a database that answers and whose tables fit.
    fn default() -> Observed {
        Observed { database: DatabaseHealth::Reachable, migrations: MigrationHealth::Current, lag: Duration::ZERO }
    }
}

impl Observations {
    pub(crate) fn latest(&self) -> Observed {
        guard::lock(&self.0).clone()
    }

    fn note(&self, change: impl FnOnce(&mut Observed)) {
        change(&mut guard::lock(&self.0));
    }
}

impl Engine {
    /// Observes until the engine ends.
    pub(crate) async fn observe_loop(self: Arc<Self>) {
        metrics::describe();
        for round in (0..COUNTED_EVERY).cycle() {
            let observed = tokio::time::timeout(LIMIT, self.observe()).await;
            let database = match observed {
                Ok(Ok(())) => DatabaseHealth::Reachable,
                Ok(Err(error)) => DatabaseHealth::Unreachable(error.to_string()),
                Err(_) => DatabaseHealth::Unreachable(format!("no answer within {} s", LIMIT.as_secs())),
            };
            let is_reachable = database == DatabaseHealth::Reachable;
            self.observations.note(|latest| latest.database = database);
            if cfg!(feature = "metrics")
                && round == 0
                && is_reachable
                && let Ok(Err(error)) = tokio::time::timeout(LIMIT, self.count()).await
            {
                tracing::debug!(%error, "instances were not counted for the metrics");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One observation: the tables' version, and the due calls of each machine.
    pub(crate) async fn observe(&self) -> Result<(), Error> {
        let Some(work) = &self.work else { return Ok(()) };
        metrics::running(work.running().len(), work.slot_count);
        let mut reader = self.looker().await?;
        let fits = match migrate::check(&mut reader.conn(), self.store.place()).await {
            Ok(()) => MigrationHealth::Current,
            Err(error @ (StoreError::NewerSchema { .. } | StoreError::OlderSchema { .. } | StoreError::OtherSchema { .. })) => {
                MigrationHealth::Other(error.to_string())
            }
            Err(error) => return Err(error.into()),
        };
        let now = self.clock.now();
        let mut lag = Duration::ZERO;
        for known in self.catalog.iter() {
            let backlog = backlog(&mut reader.conn(), &known.machine.name, now).await?;
            lag = lag.max(backlog.oldest_due);
            metrics::backlog(&known.machine.name, &backlog);
        }
        if cfg!(feature = "metrics") && !work.limits.is_empty() {
            for limit in limits::shown(&mut reader.conn(), now, MOST).await? {
                metrics::limit(&limit.name, limit.running, limit.waiting);
            }
        }
        self.observations.note(|latest| {
            latest.migrations = fits;
            latest.lag = lag;
        });
        Ok(())
    }

    /// Counts the instances and the waiting events of each machine, and the workers.
    async fn count(&self) -> Result<(), Error> {
        let mut reader = self.looker().await?;
        for known in self.catalog.iter() {
            let machine = &known.machine.name;
            let inbox_events = overview::inbox_events(&mut reader.conn(), machine, MOST).await?;
            let outbox_events = outbox::count(&mut reader.conn(), machine, MOST).await?;
            let mut sizes = Sizes { inbox_events, outbox_events, instances: Vec::new() };
            for (status, _, count) in view::newest_counts(&mut reader.conn(), machine, MOST).await?.0 {
                match sizes.instances.iter_mut().find(|(counted, _)| *counted == status) {
                    Some((_, counted)) => *counted += count,
                    None => sizes.instances.push((status, count)),
                }
            }
            metrics::sizes(machine, &sizes);
        }
        let now = self.clock.now();
        let alive = workers::leases(&mut reader.conn()).await?.values().filter(|until| **until > now).count();
        metrics::workers(alive);
        Ok(())
    }
}

async fn backlog(conn: &mut Conn<'_>, machine: &str, now: Timestamp) -> Result<Backlog, Error> {
    let overdue = overview::overdue(conn, machine, now, MOST).await?;
    Ok(Backlog { due_calls: overdue.attempts, oldest_due: overdue.since.map_or(Duration::ZERO, |since| now.since(since)) })
}

//! Observes the database from time to time, for [`Runtime::health`](crate::runtime::Runtime::health) and for the gauges of the metrics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fsm_core::time::Timestamp;
use fsm_store::conn::Conn;
use fsm_store::error::{SchemaError, StoreError};
use fsm_store::{limits, migrate, outbox, overview, view, workers};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::engines::Engines;
use crate::error::Error;
use crate::health::{DatabaseHealth, Health, LeaseHealth, MigrationHealth, Observed};
use crate::metrics::{self, Backlog, Sizes};
use crate::preference::Turn;
use crate::runtime::Runtime;

/// The pause between two observations.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest additional pause in a partition that this process does not prefer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An observation that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(5);
/// One observation in so many counts instances and waiting events too, which reads more rows.
const COUNTED_EVERY: u32 = 6;
/// No gauge counts further.
const MOST: u32 = 10_000;

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
            let next = Instant::now() + PAUSE;
            // The end of an outage is noticed as soon everywhere.
            let work = self.work.as_ref().filter(|_| is_reachable);
            let look = work.map_or(next, |work| work.preference.at_a_look(next, Turn::Observer));
            tokio::time::sleep_until(look.min(next + LONGEST_PAUSE)).await;
        }
    }

    /// One observation: the tables' version, and the due calls of each machine.
    pub(crate) async fn observe(&self) -> Result<(), Error> {
        let Some(work) = &self.work else { return Ok(()) };
        metrics::running(self.partition, work.running().len(), work.slot_count);
        let mut reader = self.engine_reader().await?;
        let fits = match migrate::check(&mut reader.conn(), &self.store.place()).await {
            Ok(()) => MigrationHealth::Current,
            Err(StoreError::Schema(error)) if !matches!(error, SchemaError::NoTables { .. }) => MigrationHealth::Other(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let now = self.clock.now();
        let mut lag = Duration::ZERO;
        for known in self.catalog.iter() {
            let backlog = backlog(&mut reader.conn(), &known.machine.name, now).await?;
            lag = lag.max(backlog.oldest_due);
            metrics::backlog(self.partition, &known.machine.name, &backlog);
        }
        if cfg!(feature = "metrics") && work.has_limits.load(Ordering::Relaxed) {
            for limit in limits::shown(&mut reader.conn(), now, MOST).await? {
                metrics::limit(self.partition, &limit.name, limit.running, limit.waiting);
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
        let mut reader = self.engine_reader().await?;
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
            metrics::sizes(self.partition, machine, &sizes);
        }
        if let Some(here) = self.partition {
            let backlog = self.backlog_for_partitions(&mut reader.conn(), MOST).await?;
            metrics::for_partitions(here, backlog.iter().map(|one| one.events).sum());
        }
        let now = self.clock.now();
        let alive = workers::leases(&mut reader.conn()).await?.values().filter(|until| **until > now).count();
        metrics::workers(self.partition, alive);
        Ok(())
    }
}

async fn backlog(conn: &mut Conn<'_>, machine: &str, now: Timestamp) -> Result<Backlog, Error> {
    let overdue = overview::overdue(conn, machine, now, MOST).await?;
    Ok(Backlog { due_calls: overdue.attempts, oldest_due: overdue.since.map_or(Duration::ZERO, |since| now.since(since)) })
}

impl Engine {
    /// The health of this process, from memory.
    pub(crate) fn health(&self) -> Health {
        let Observed { lag, database, migrations } = self.observations.latest();
        let lease = match (&self.work, self.session()) {
            (None, _) => LeaseHealth::None,
            (Some(work), Some(_)) => LeaseHealth::Certain(work.session.until()),
            (Some(_), None) => LeaseHealth::Uncertain,
        };
        let (unreported, executing) = self.work.as_ref().map_or((0, 0), |work| work.left());
        Health {
            database,
            lease,
            migrations,
            lag,
            running: executing,
            slots: self.work.as_ref().map_or(0, |work| work.slot_count),
            unreported,
            is_shutting_down: self.work.is_some() && !self.may_start(),
            unready_partitions: Vec::new(),
            preferred_partitions: Vec::new(),
        }
    }
}

impl Engines {
    /// The health of the process, of all partitions together.
    pub(crate) fn health(&self) -> Health {
        match self.first().partition {
            None => self.first().health(),
            Some(_) => {
                let is_preferred = |engine: &Engine| engine.work.as_ref().is_some_and(|work| work.preference.is_preferred());
                let preferred_partitions =
                    (0..).zip(self.all()).filter(|(_, engine)| is_preferred(engine)).map(|(number, _)| number).collect();
                let all = (0..).zip(self.all()).map(|(number, engine)| (number, engine.health()));
                Health { preferred_partitions, ..Health::of_partitions(all.collect()) }
            }
        }
    }
}

impl Runtime {
    /// The health of this process: whether its database answers, its lease is certain and its tables fit, how long due calls wait, and how
    /// many attempts run. It is read from memory and never waits. On a database with partitions it is about all of them together.
    ///
    /// ```no_run
    /// # async fn example(runtime: &fsm_runtime::runtime::Runtime) {
    /// let health = runtime.health();
    /// let status = if health.is_ready() { 200 } else { 503 };
    /// println!("{status} {health}, {} of {} slots are used", health.running, health.slots);
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        self.engines.health()
    }
}

impl EngineAccess {
    /// The health of the process that has this database open. Unlike [`Runtime::health`] it can be asked during a shutdown.
    pub fn health(&self) -> Health {
        self.engines.health()
    }
}

//! The health of a runtime: what `/livez`, `/readyz` and a person on call want to know.

use std::fmt;
use std::time::Duration;

use fsm_core::time::Timestamp;
use serde::Serialize;

use crate::engine::Engine;
use crate::engine_access::EngineAccess;
use crate::observer::Observed;
use crate::runtime::Runtime;

/// The state of a process and of its database, as far as the process knows. It is read from memory and never waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// Whether the database answered the last observation. Observations are made every five seconds.
    pub database: DatabaseHealth,
    /// Whether this process may run attempts.
    pub lease: LeaseHealth,
    /// Whether the tables are those that this version of the crate needs.
    pub migrations: MigrationHealth,
    /// How long the oldest due call of this program's machines has waited for a worker, at the last observation. Zero if none is due.
    pub lag: Duration,
    /// The attempts that run in this process.
    pub running: usize,
    /// The attempts that may run in this process at once; zero for a client.
    pub slots: usize,
    /// The attempts that ended and whose outcome is not in the database yet. See [`Runtime::unreported`].
    pub unreported: usize,
    /// A graceful shutdown goes on, or the process has stopped working.
    pub is_shutting_down: bool,
}

/// Whether the database answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseHealth {
    /// It answered the last observation.
    Reachable,
    /// It did not, with the error.
    Unreachable(String),
}

/// Whether the lease of this process is certain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseHealth {
    /// Other processes treat this one as alive until then, unless it renews the lease.
    Certain(Timestamp),
    /// The lease ran out. This process claims nothing, and others may have treated its attempts as lost.
    Uncertain,
    /// A client runs no attempts and has no lease.
    None,
}

/// Whether the tables fit this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationHealth {
    /// They are those of this version.
    Current,
    /// Another version of the crate migrated them, with the error.
    Other(String),
}

impl Health {
    /// Whether the process can still do its work by itself. `false` once its engine has ended: restart it then. An unreachable
    /// database does not end a process's life, for a restart does not help.
    pub fn is_live(&self) -> bool {
        !self.is_shutting_down || self.running > 0 || self.unreported > 0
    }

    /// Whether the process should get new work: the database answers, the lease is certain, the tables fit, and no shutdown goes on.
    pub fn is_ready(&self) -> bool {
        self.database == DatabaseHealth::Reachable
            && self.lease != LeaseHealth::Uncertain
            && self.migrations == MigrationHealth::Current
            && !self.is_shutting_down
    }
}

impl fmt::Display for Health {
    /// One line: `ready`, or why not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            return f.write_str("ready");
        }
        f.write_str("not ready")?;
        if self.is_shutting_down {
            f.write_str(": a shutdown goes on")?;
        }
        if let DatabaseHealth::Unreachable(why) = &self.database {
            write!(f, ": the database does not answer ({why})")?;
        }
        if self.lease == LeaseHealth::Uncertain {
            f.write_str(": the lease of this process is not certain")?;
        }
        if let MigrationHealth::Other(why) = &self.migrations {
            write!(f, ": the tables do not fit ({why})")?;
        }
        Ok(())
    }
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
        }
    }
}

impl Runtime {
    /// The health of this process: whether its database answers, its lease is certain and its tables fit, how long due calls wait, and how
    /// many attempts run. It is read from memory and never waits.
    ///
    /// ```no_run
    /// # async fn example(runtime: &fsm_runtime::runtime::Runtime) {
    /// let health = runtime.health();
    /// let status = if health.is_ready() { 200 } else { 503 };
    /// println!("{status} {health}, {} of {} slots are used", health.running, health.slots);
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        self.engine.health()
    }
}

impl EngineAccess {
    /// The health of the process that has this database open. Unlike [`Runtime::health`] it can be asked during a shutdown.
    pub fn health(&self) -> Health {
        self.engine.health()
    }
}

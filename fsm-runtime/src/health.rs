//! The health of a process, for `/livez`, `/readyz` and people on call.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use fsm_core::time::Timestamp;
use serde::Serialize;

use crate::guard;

/// The state of a process and of its database, as far as the process knows. It is read from memory and never waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The answer of the database to the last observation. Observations are made every five seconds.
    pub database: DatabaseHealth,
    /// The lease: without a certain one, this process starts no attempts.
    pub lease: LeaseHealth,
    /// The version of the tables, compared with the one that this version of the crate needs.
    pub migrations: MigrationHealth,
    /// The time for which the oldest due call of this program's machines has waited for a worker, at the last observation. Zero if none is due.
    pub lag: Duration,
    /// The attempts that run in this process.
    pub running: usize,
    /// The attempts that may run in this process at once; zero for a client.
    pub slots: usize,
    /// The attempts that ended and whose outcome is not in the database yet. See [`Runtime::unreported`](crate::runtime::Runtime::unreported).
    pub unreported: usize,
    /// A graceful shutdown goes on, or the process has stopped working.
    pub is_shutting_down: bool,
    /// The numbers of the partitions on which the process is not ready. Empty on a database without partitions.
    pub unready_partitions: Vec<u32>,
    /// The numbers of the partitions that this process prefers: it looks for due work there at every poll interval, and in the others for work that
    /// is overdue. Empty on a database without partitions, and for a client.
    pub preferred_partitions: Vec<u32>,
}

/// The answer of the database to an observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseHealth {
    /// It answered the last observation.
    Reachable,
    /// It did not, with the error.
    Unreachable(String),
}

/// The state of this process's lease.
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

/// The state of the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationHealth {
    /// They are those of this version.
    Current,
    /// Another version of the crate migrated them, with the error.
    Other(String),
}

impl Health {
    /// True if the process can still do its work by itself. `false` once its engine has ended: restart it then. It stays `true` while the
    /// database is unreachable, because a restart does not help.
    pub fn is_live(&self) -> bool {
        !self.is_shutting_down || self.running > 0 || self.unreported > 0
    }

    /// True if the process should get new work: the database answers, the lease is certain, the tables fit, and no shutdown goes on. On a database
    /// with partitions this must be so for one of them at least: all processes see the same outage, and if none of them were ready, the
    /// other partitions would get no requests either.
    pub fn is_ready(&self) -> bool {
        self.database == DatabaseHealth::Reachable
            && self.lease != LeaseHealth::Uncertain
            && self.migrations == MigrationHealth::Current
            && !self.is_shutting_down
    }
}

impl Health {
    /// The health of a process on several partitions, each with its number. There is at least one.
    pub(crate) fn of_partitions(all: Vec<(u32, Health)>) -> Health {
        let (ready, unready): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, health)| health.is_ready());
        let unready_partitions = unready.iter().map(|(number, _)| *number).collect();
        let merged = |some: Vec<(u32, Health)>| some.into_iter().map(|(_, health)| health).reduce(Health::and);
        let together = match (merged(ready), merged(unready)) {
            (Some(ready), Some(unready)) => {
                // Only what is counted is about all partitions.
                let (database, lease, migrations) = (ready.database.clone(), ready.lease.clone(), ready.migrations.clone());
                Health { database, lease, migrations, ..ready.and(unready) }
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => unreachable!("a process has at least one engine"),
        };
        Health { unready_partitions, ..together }
    }

    fn and(self, other: Health) -> Health {
        Health {
            database: if self.database == DatabaseHealth::Reachable { other.database } else { self.database },
            lease: self.lease.earlier(other.lease),
            migrations: if self.migrations == MigrationHealth::Current { other.migrations } else { self.migrations },
            lag: self.lag.max(other.lag),
            running: self.running + other.running,
            slots: self.slots + other.slots,
            unreported: self.unreported + other.unreported,
            is_shutting_down: self.is_shutting_down || other.is_shutting_down,
            unready_partitions: Vec::new(),
            preferred_partitions: Vec::new(),
        }
    }
}

impl LeaseHealth {
    fn earlier(self, other: LeaseHealth) -> LeaseHealth {
        match (self, other) {
            (LeaseHealth::Certain(one), LeaseHealth::Certain(other)) => LeaseHealth::Certain(one.min(other)),
            (LeaseHealth::None, lease) | (lease @ LeaseHealth::Uncertain, _) | (_, lease) => lease,
        }
    }
}

impl fmt::Display for Health {
    /// One line: `ready`, or why not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            f.write_str("ready")?;
            return self.write_partitions(f);
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

impl Health {
    fn write_partitions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.unready_partitions.iter().map(u32::to_string).collect();
        match numbers.len() {
            0 => Ok(()),
            1 => write!(f, ", but not on partition {}", numbers[0]),
            _ => write!(f, ", but not on partitions {}", numbers.join(", ")),
        }
    }
}

/// The result of the last observation.
#[derive(Default)]
pub(crate) struct Observations(Mutex<Observed>);

/// The result of one observation.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) database: DatabaseHealth,
    pub(crate) migrations: MigrationHealth,
    /// The time for which the oldest due call has waited.
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

    pub(crate) fn note(&self, change: impl FnOnce(&mut Observed)) {
        change(&mut guard::lock(&self.0));
    }
}

//! The workers with a valid lease, and the consequence for attempts that are stored as executing.

use fsm_core::call::AttemptState;
use fsm_core::family::Family;
use fsm_core::ids::SessionId;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Admin;
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use fsm_runtime::handle::activity::{Activity, OpenCall};
use fsm_runtime::handle::instance_view::InstanceView;
use fsm_store::workers::Worker;

use crate::problem::Problem;

/// The workers of a database, or of all of its partitions, at one point in time.
pub(super) struct Liveness {
    workers: Vec<Located<Worker>>,
    now: Timestamp,
}

/// The expired lease of an attempt's worker.
#[derive(Clone, Copy)]
pub(super) struct Lapse {
    /// The end of the lease; `None` if the worker is unknown.
    pub at: Option<Timestamp>,
}

impl Liveness {
    pub(super) async fn of(admin: &Admin) -> Result<Liveness, Problem> {
        let workers = admin.workers().await?.into_iter().map(|row| Located { partition: None, row }).collect();
        Ok(Liveness { workers, now: admin.now() })
    }

    /// The workers of all partitions.
    pub(super) async fn of_all(database: &WholeDatabase) -> Result<Liveness, Problem> {
        Ok(Liveness { workers: database.workers().await?, now: database.now() })
    }

    /// The number of workers with a valid lease. Each has a session in each partition, so that the partition with most of them counts.
    pub(super) fn alive(&self) -> usize {
        let alive = |located: &&Located<Worker>| located.row.lease_until > self.now;
        let partitions = self.workers.chunk_by(|one, other| one.partition == other.partition);
        partitions.map(|workers| workers.iter().filter(alive).count()).max().unwrap_or_default()
    }

    /// The expired lease of the worker that executes the call; `None` if the lease is valid or the call does not execute.
    pub(super) fn lapse(&self, call: &OpenCall) -> Option<Lapse> {
        let session = call.worker.filter(|_| call.state == AttemptState::Executing)?;
        let at = self.lease_of(session);
        at.is_none_or(|at| at <= self.now).then_some(Lapse { at })
    }

    /// The end of the lease of the worker that executes the call.
    pub(super) fn lease_until(&self, call: &OpenCall) -> Option<Timestamp> {
        self.lease_of(call.worker?)
    }

    fn lease_of(&self, session: SessionId) -> Option<Timestamp> {
        self.workers.iter().find(|located| located.row.session == session).map(|located| located.row.lease_until)
    }

    /// A sentence about the activity of the instance. It says if there is no worker for it.
    pub(super) fn about(&self, seen: &InstanceView) -> String {
        let activity = seen.activity();
        match (&activity, seen.call.as_ref().and_then(|call| self.lapse(call))) {
            (Activity::Runs { verb, attempt }, Some(lapse)) => {
                format!("attempt {attempt} of `{verb}` has no worker: {lapse}; {}", self.taken_over())
            }
            (Activity::Waits { .. }, _) if self.alive() == 0 => format!("{activity}; no worker is alive"),
            (Activity::Rests, _) if matches!(seen.row.family, Family::Open(_)) => {
                "rests and waits for an event or for its children".to_owned()
            }
            _ => activity.to_string(),
        }
    }

    fn taken_over(&self) -> &'static str {
        if self.alive() == 0 { "no worker is alive to take it over" } else { "a live worker of its machine takes it over" }
    }
}

impl std::fmt::Display for Lapse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.at {
            Some(at) => write!(f, "the lease ended at {at}"),
            None => f.write_str("its session is gone"),
        }
    }
}

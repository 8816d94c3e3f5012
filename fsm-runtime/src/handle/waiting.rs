//! Waits until an instance meets a condition. Commits of this process wake it, and polling finds those of other processes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use fsm_core::commit::instance_key::InstanceKey;
use fsm_core::instance::Instance as InstanceRow;
use tokio::time::Instant;

use super::instance_view::{self, InstanceView, completed};
use super::view::Instance;
use crate::encode;
use crate::engine::Engine;
use crate::engines::ClientGuard;
use crate::error::Error;
use crate::registry::Machine;

/// The shortest and longest wait between two polls. Each wait is 1.5 times the one before, so that a caller in a process that does not run the
/// instance learns of the change after at most 1.5 times as long.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A wait for an instance.
pub(super) struct Waiting<M: Machine> {
    pub(super) engine: Arc<Engine>,
    _client_guard: Option<Arc<ClientGuard>>,
    key: String,
    pub(super) within: Option<Duration>,
    machine: PhantomData<fn() -> M>,
}

/// The condition of a wait, and the error if its time is over.
pub(super) trait Wanted {
    /// Returns true if the condition cannot hold while an attempt executes.
    fn is_not_met_while_running(&self) -> bool;

    /// Returns true if the instance meets the condition, and an error if it can no longer meet it.
    fn is_met(&self, row: &InstanceRow) -> Result<bool, Error>;

    /// The error of a wait whose time is over.
    fn timed_out(&self, seen: &InstanceView) -> Error;
}

impl<M: Machine> Waiting<M> {
    pub(super) fn new(engine: Arc<Engine>, client_guard: Option<Arc<ClientGuard>>, key: &str) -> Waiting<M> {
        Waiting { engine, _client_guard: client_guard, key: key.to_owned(), within: None, machine: PhantomData }
    }

    pub(super) async fn until(self, wanted: impl Wanted) -> Result<Instance<M>, Error> {
        encode::check_key(&self.key)?;
        let engine = &self.engine;
        let deadline = self.within.and_then(|limit| Instant::now().checked_add(limit));
        // The watch begins before the first poll, so that no change between the two is missed.
        let mut watch = engine.watchers.watch(InstanceKey::new(M::NAME, &self.key));
        // A call that runs in this process needs no poll, because the commit of its completion wakes this wait.
        let skips_first = watch.is_running && wanted.is_not_met_while_running();
        let mut needs_look = !skips_first;
        let mut away_since: Option<Instant> = None;
        let mut pause = if skips_first { PAUSES.1 } else { PAUSES.0 };
        loop {
            if needs_look {
                match Box::pin(self.look()).await {
                    Ok(seen) if wanted.is_met(&seen.row)? => return self.typed(seen),
                    Ok(_) => away_since = None,
                    Err(error) if error.may_pass() => {
                        let away = away_since.get_or_insert_with(Instant::now).elapsed();
                        if deadline.is_none() && away >= engine.limits.patience {
                            return Err(error);
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
            needs_look = true;
            let next_look = Instant::now() + pause;
            loop {
                let until = deadline.map_or(next_look, |deadline| deadline.min(next_look));
                let Ok(moved) = tokio::time::timeout_at(until, watch.next()).await else { break };
                if wanted.is_met(&moved.instance)? {
                    let seen = completed(engine, Arc::unwrap_or_clone(moved.instance), moved.live.as_deref()).await?;
                    return self.typed(seen);
                }
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let seen = Box::pin(self.look()).await?;
                return if wanted.is_met(&seen.row)? { self.typed(seen) } else { Err(wanted.timed_out(&seen)) };
            }
            pause = (pause * 3 / 2).min(PAUSES.1);
        }
    }

    /// A single try, because the wait itself polls until its limit.
    async fn look(&self) -> Result<InstanceView, Error> {
        let found = instance_view::find(&self.engine, M::NAME, &self.key).await?;
        found.ok_or_else(|| Error::not_found(M::NAME, &self.key))
    }

    fn typed(&self, seen: InstanceView) -> Result<Instance<M>, Error> {
        Instance::of(seen, &self.engine.data_protection)
    }
}

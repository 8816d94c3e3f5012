//! Cancels running verbs that are interrupted by events which other processes accepted.

use fsm_core::ids::InstanceId;
use fsm_store::lock;

use crate::engine::Engine;
use crate::error::Error;
use crate::running::{self, Phase, Running};

impl Engine {
    /// Cancels each verb that runs here if an event that interrupts it waits for its instance. Reads nothing unless a verb runs in a state out of
    /// which an edge interrupts.
    pub(crate) async fn cancel_interrupted(&self) -> Result<(), Error> {
        let interruptible = self.interruptible();
        if interruptible.is_empty() {
            return Ok(());
        }
        let waiting = {
            let mut reader = self.engine_reader().await?;
            lock::waiting_events(&mut reader.conn(), &interruptible).await?
        };
        for (instance, event) in waiting {
            let Some(work) = &self.work else { return Ok(()) };
            let interrupts = |running: &&Running| running.attempt.instance == instance && self.is_interrupted_by(running, &event);
            let wanted: Vec<_> = work.running().values().filter(interrupts).map(Running::canceller).collect();
            wanted.into_iter().for_each(running::cancel);
        }
        Ok(())
    }

    /// The instances whose verb runs here and can be interrupted.
    fn interruptible(&self) -> Vec<InstanceId> {
        let Some(work) = &self.work else { return Vec::new() };
        let is_interruptible = |running: &&Running| {
            let known = self.catalog.get(&running.attempt.machine);
            running.phase == Phase::Executing && known.is_some_and(|known| known.machine.is_interruptible(running.attempt.from.as_deref()))
        };
        work.running().values().filter(is_interruptible).map(|running| running.attempt.instance).collect()
    }

    fn is_interrupted_by(&self, running: &Running, event: &str) -> bool {
        let known = self.catalog.get(&running.attempt.machine);
        let edge = known.and_then(|known| known.machine.edge(running.attempt.from.as_deref(), event));
        edge.is_some_and(|edge| edge.interrupts)
    }
}

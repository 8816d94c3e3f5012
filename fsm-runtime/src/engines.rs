//! The engines of a process: a single one, or on a database with partitions one for each partition.

use std::sync::Arc;

use crate::engine::{Engine, Work, engine_of};

/// All engines of a process, by the number of their partition. There is at least one.
#[derive(Clone)]
pub(crate) struct Engines(Arc<[Arc<Engine>]>);

/// Part of every handle to a client's engines. When the last one is dropped, the committers end.
pub(crate) struct ClientGuard(pub(crate) Engines);

impl Engines {
    /// The engines of all partitions. Each engine can reach the others from now on.
    pub(crate) fn new(engines: Vec<Arc<Engine>>) -> Engines {
        assert!(!engines.is_empty(), "a process has at least one engine");
        let engines: Arc<[_]> = engines.into();
        let stores = engines.iter().map(|engine| engine.store.clone()).collect();
        let lane_limits = Arc::default();
        engines.iter().for_each(|engine| engine.meet(Arc::downgrade(&engines), &stores, &lane_limits));
        Engines(engines)
    }

    /// One engine alone: the one of a database without partitions, or one of several.
    pub(crate) fn only(engine: &Arc<Engine>) -> Engines {
        Engines(Arc::new([Arc::clone(engine)]))
    }

    /// The engine of the partition that has the instance with this key.
    pub(crate) fn of_key(&self, key: &str) -> &Arc<Engine> {
        engine_of(&self.0, key)
    }

    /// The first engine, for what is the same in all of them: the machines, the limits of sizes, the codec and the kind of the database.
    pub(crate) fn first(&self) -> &Arc<Engine> {
        &self.0[0]
    }

    /// All engines, by partition.
    pub(crate) fn all(&self) -> &[Arc<Engine>] {
        &self.0
    }

    /// The state of the work on all partitions.
    pub(crate) fn work(&self) -> impl Iterator<Item = &Work> {
        self.0.iter().filter_map(|engine| engine.work.as_ref())
    }

    /// Ends all tasks of this process at once, as a crash would.
    pub(crate) fn kill(&self) {
        self.0.iter().for_each(|engine| engine.kill());
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0.all().iter().for_each(|engine| engine.queue.close());
    }
}

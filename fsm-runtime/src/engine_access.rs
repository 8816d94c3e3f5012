//! The open database of a runtime or a client, for tools that run inside the same program.

use std::sync::Arc;

use fsm_core::partition::Partition;

use crate::engines::{ClientGuard, Engines};

/// Access to the database through the connections of the program itself. Created from a runtime or a client.
#[derive(Clone)]
pub struct EngineAccess {
    pub(crate) engines: Engines,
    pub(crate) client_guard: Option<Arc<ClientGuard>>,
}

impl EngineAccess {
    pub(crate) fn new(engines: &Engines, client_guard: Option<&Arc<ClientGuard>>) -> EngineAccess {
        EngineAccess { engines: engines.clone(), client_guard: client_guard.cloned() }
    }

    /// Access to each partition alone, in the order of their numbers. One access to the whole database if it has no partitions.
    pub fn partitions(&self) -> Vec<EngineAccess> {
        self.engines.all().iter().map(|engine| EngineAccess::new(&Engines::only(engine), self.client_guard.as_ref())).collect()
    }

    /// The partition that this is access to; `None` for a database without partitions, and for access to several partitions.
    pub fn partition(&self) -> Option<Partition> {
        match self.engines.all() {
            [only] => only.partition,
            _ => None,
        }
    }
}

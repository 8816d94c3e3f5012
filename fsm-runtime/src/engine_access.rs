//! The open database of a runtime or a client, for tools that run inside the same program.

use std::sync::Arc;

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
}

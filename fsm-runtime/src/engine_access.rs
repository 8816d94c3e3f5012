//! The open database of a runtime or a client, for tools that run inside the same program.

use std::sync::Arc;

use crate::engine::{ClientGuard, Engine};

/// Access to the database through the connections of the program itself. Created from a runtime or a client.
#[derive(Clone)]
pub struct EngineAccess {
    pub(crate) engine: Arc<Engine>,
    pub(crate) client_guard: Option<Arc<ClientGuard>>,
}

impl EngineAccess {
    pub(crate) fn new(engine: &Arc<Engine>, client_guard: Option<&Arc<ClientGuard>>) -> EngineAccess {
        EngineAccess { engine: Arc::clone(engine), client_guard: client_guard.cloned() }
    }
}

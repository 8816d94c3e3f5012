//! The open database of a runtime or a client, for tools that run inside the same program.

use std::sync::Arc;

use crate::engine::{Engine, Life};

/// The database as the program itself has it open. It is created from a runtime or a client.
#[derive(Clone)]
pub struct Inside {
    pub(crate) engine: Arc<Engine>,
    pub(crate) life: Option<Arc<Life>>,
}

impl Inside {
    pub(crate) fn new(engine: &Arc<Engine>, life: Option<&Arc<Life>>) -> Inside {
        Inside { engine: Arc::clone(engine), life: life.cloned() }
    }
}

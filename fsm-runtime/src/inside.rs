//! What a program has open: its runtime's database or its client's, for whoever works on it from inside.

use std::sync::Arc;

use crate::engine::{Engine, Life};

/// A database as the program itself has it open: made of a runtime or a client.
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

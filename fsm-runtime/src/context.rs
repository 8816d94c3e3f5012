//! What a verb sees of the engine.

use std::marker::PhantomData;

use crate::data::{Data, DataMap};

/// What a verb sees of the engine: the attempt it is in, and what it may ask for.
pub struct Ctx<'c> {
    data: DataMap,
    life: PhantomData<&'c ()>,
}

impl Ctx<'_> {
    pub(crate) fn data<T: Send + Sync + 'static>(&self) -> Data<T> {
        self.data.get()
    }
}

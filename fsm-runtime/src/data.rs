//! Shared values that verbs take by type: gateways, connection pools, settings.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A shared value that a verb takes as a parameter. The value was given to `Runtime::builder().data(…)`. It dereferences to `T`, and a
/// clone is another handle to the same value.
///
/// `T` may be a trait: a verb that takes `Data<dyn Gateway>` gets the value of `.data_arc(gateway)`, where `gateway` is an
/// `Arc<dyn Gateway>`. The trait needs `Send + Sync` as supertraits.
pub struct Data<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Data<T> {
    fn clone(&self) -> Self {
        Data(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Deref for Data<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One value for each type.
#[derive(Default, Clone)]
pub(crate) struct DataMap(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl DataMap {
    pub(crate) fn put<T: ?Sized + Send + Sync + 'static>(&mut self, value: Arc<T>) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(Data(value)));
    }

    pub(crate) fn has(&self, id: TypeId) -> bool {
        self.0.contains_key(&id)
    }

    /// Returns the value of the type. Panics if it is missing, which `start` rules out for every registered verb.
    pub(crate) fn get<T: ?Sized + Send + Sync + 'static>(&self) -> Data<T> {
        let found = self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref::<Data<T>>().cloned());
        found.unwrap_or_else(|| panic!("no `{}` was given to the builder's `data(…)`", type_name::<T>()))
    }
}

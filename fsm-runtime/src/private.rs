//! What expanded macros call. Not for users: it may change in any release.

use std::any::TypeId;
use std::error::Error as StdError;
use std::future::Future;

use fsm_core::retry::RetryAdvice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Ctx;
use crate::data::Data;
use crate::failure::Failure;

pub use crate::failure::{Failed, Retryable};
pub use crate::registry::{
    Accepts, DataEntry, DelayEntry, EdgeEntry, GiveUpEntry, Input, Keeps, Machine, MachineEntry, MachineRef, PolicyEntry, RetryEntry, Run,
    Running, Verb, VerbEntry, VerbRef,
};
pub use crate::timeout::Timeout;
pub use {inventory, serde};

/// The event, or a failed attempt that says what did not decode.
pub fn decode_event<E: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<E, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("the payload does not decode as `{name}`: {error}")))
}

/// The record, `Default` while none was written, or a failed attempt that says what did not decode.
pub fn decode_record<R: DeserializeOwned + Default>(name: &str, bytes: Option<&[u8]>) -> Result<R, Failure> {
    let Some(bytes) = bytes else { return Ok(R::default()) };
    serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("the record does not decode as `{name}`: {error}")))
}

/// The record as it is kept, or a failed attempt that says why it cannot be.
pub fn encode_record<R: Serialize>(name: &str, record: &R) -> Result<Option<Vec<u8>>, Failure> {
    serde_json::to_vec(record).map(Some).map_err(|error| Failure::new(format!("the record `{name}` does not encode: {error}")))
}

/// The value of a `Data<T>` parameter.
pub fn data<T: Send + Sync + 'static>(ctx: &Ctx<'_>) -> Data<T> {
    ctx.data::<T>()
}

/// The entry of a `Data<T>` parameter.
pub const fn data_entry<T: Send + Sync + 'static>() -> DataEntry {
    DataEntry { name: std::any::type_name::<T>, id: TypeId::of::<T> }
}

/// The future itself: fails to compile, at the offending await, if it is not `Send`.
pub fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

/// Whether an error is a `T`; for `give_up_on`.
pub fn is_error<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    error.is::<T>()
}

/// Whether two names are the same, at compile time.
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A verb's error on its way to a [`Failure`]: `(&&Thrown::new(error)).into_failure()` asks [`Retryable`] where the type
/// has it, and nobody where it has not. Method lookup prefers the fewer references.
pub struct Thrown<E>(std::cell::Cell<Option<E>>);

impl<E> Thrown<E> {
    /// Wraps an error.
    pub fn new(error: E) -> Thrown<E> {
        Thrown(std::cell::Cell::new(Some(error)))
    }

    fn take(&self) -> E {
        self.0.take().expect("a thrown error is taken once")
    }
}

/// For error types that decide for themselves.
pub trait ThrownRetryable {
    /// With the error's own advice.
    fn into_failure(&self) -> Failure;
}

/// For all other error types.
pub trait ThrownPlain {
    /// With no advice, or that of a `Failure`.
    fn into_failure(&self) -> Failure;
}

impl<E: Retryable + Into<Failure>> ThrownRetryable for &Thrown<E> {
    fn into_failure(&self) -> Failure {
        let error = self.take();
        let advice: RetryAdvice = error.retry();
        let failure: Failure = error.into();
        failure.with_advice(advice)
    }
}

impl<E: Into<Failure>> ThrownPlain for Thrown<E> {
    fn into_failure(&self) -> Failure {
        self.take().into()
    }
}

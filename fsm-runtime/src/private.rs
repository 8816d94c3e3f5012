//! What expanded macros call. Not for users: it may change in any release.

mod checks;

use std::any::TypeId;
use std::error::Error as StdError;
use std::future::Future;

use fsm_core::retry::RetryAdvice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::data::Data;
use crate::failure::{Failure, Unreadable};

pub use self::checks::{
    Catches, Fresh, IsEvent, IsTimeout, IsVerb, Pick, Returned, broken, catches, inherits, is_caught, is_event, is_none_of, is_timeout,
    is_verb, keeps, keeps_nothing, returned, same,
};
pub use crate::context::Ctx;
pub use crate::failure::{FailedAttempt, Retryable, RetryableRef};
pub use crate::registry::{
    Accepts, DataEntry, DelayEntry, EdgeEntry, GiveUpEntry, Input, Keeps, KeepsNothing, Machine, MachineEntry, MachineRef, NoCatch,
    PolicyEntry, RetryEntry, Run, Running, Verb, VerbEntry, VerbRef,
};
pub use crate::timeout::Timeout;
pub use {inventory, serde};

/// Whether bytes are an event of the type `E`: `(&&Decoding::<E>::NEW).why_not(bytes)` tries where the type can be read, and says
/// nothing where it cannot, which is told elsewhere. Method lookup prefers the fewer references.
pub struct Decoding<E>(std::marker::PhantomData<fn() -> E>);

impl<E> Decoding<E> {
    /// Of this type.
    pub const NEW: Decoding<E> = Decoding(std::marker::PhantomData);
}

/// For event types that can be read.
pub trait DecodingReadable {
    /// What does not decode; `None` when all does.
    fn why_not(&self, bytes: &[u8]) -> Option<String>;
}

/// For all other types.
pub trait DecodingAny {
    /// Nothing is known.
    fn why_not(&self, bytes: &[u8]) -> Option<String>;
}

impl<E: DeserializeOwned> DecodingReadable for &Decoding<E> {
    fn why_not(&self, bytes: &[u8]) -> Option<String> {
        serde_json::from_slice::<E>(bytes).err().map(|error| error.to_string())
    }
}

impl<E> DecodingAny for Decoding<E> {
    fn why_not(&self, _bytes: &[u8]) -> Option<String> {
        None
    }
}

/// The event, or a failed attempt that says what did not decode.
pub fn decode_event<E: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<E, Failure> {
    serde_json::from_slice(bytes).map_err(|error| unreadable("payload", name, &error))
}

/// The record, `Default` while none was written, or a failed attempt that says what did not decode.
pub fn decode_record<R: DeserializeOwned + Default>(name: &str, bytes: Option<&[u8]>) -> Result<R, Failure> {
    let Some(bytes) = bytes else { return Ok(R::default()) };
    serde_json::from_slice(bytes).map_err(|error| unreadable("record", name, &error))
}

fn unreadable(value: &str, name: &str, why: &serde_json::Error) -> Failure {
    Failure::new(Unreadable(format!("the {value} does not decode as `{name}`: {why}")))
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

/// What an error says of its own retry, if it is a `T`; for `retryable!`.
pub fn advice_of<T: Retryable + 'static>(error: &(dyn StdError + 'static)) -> Option<RetryAdvice> {
    error.downcast_ref::<T>().map(Retryable::retry)
}

/// Whether an error is a `T`; for `give_up_on`.
pub fn is_error<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    error.is::<T>()
}

/// A verb's error on its way to a [`Failure`]: `(&&Thrown::new(error)).failure()` asks [`Retryable`] where the type
/// has it, and nobody where it has not. Method lookup prefers the fewer references.
pub struct Thrown<E> {
    error: std::cell::Cell<Option<E>>,
    // Asked for where the error is wrapped, so that an error without it is told of once.
    convert: fn(E) -> Failure,
}

impl<E> Thrown<E> {
    /// Wraps an error.
    pub fn new(error: E) -> Thrown<E>
    where
        E: Into<Failure>,
    {
        Thrown { error: std::cell::Cell::new(Some(error)), convert: E::into }
    }

    fn take(&self) -> E {
        self.error.take().expect("a thrown error is taken once")
    }
}

/// For error types that decide for themselves.
pub trait ThrownRetryable {
    /// With the error's own advice.
    fn failure(&self) -> Failure;
}

/// For all other error types.
pub trait ThrownPlain {
    /// With no advice, or that of a `Failure`.
    fn failure(&self) -> Failure;
}

impl<E: Retryable> ThrownRetryable for &Thrown<E> {
    fn failure(&self) -> Failure {
        let error = self.take();
        let advice: RetryAdvice = error.retry();
        (self.convert)(error).with_advice(advice)
    }
}

impl<E> ThrownPlain for Thrown<E> {
    fn failure(&self) -> Failure {
        (self.convert)(self.take())
    }
}

/// The entry of a verb whose function has a mistake: the program does not compile, and nothing runs it.
pub static MISTAKEN: VerbEntry = VerbEntry {
    name: "",
    module: "",
    docs: "",
    file: "",
    line: 0,
    event: "",
    event_type: TypeId::of::<()>,
    timeout: None,
    retry: RetryEntry::Inherit,
    data: &[],
    decodes: |_| None,
    run: |_, _| Box::pin(async { Ok(None) }),
};

/// Why a text is not a state of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownState {
    machine: &'static str,
    text: String,
    states: &'static [&'static str],
}

impl UnknownState {
    /// `text` is none of `states`.
    pub fn new(machine: &'static str, text: &str, states: &'static [&'static str]) -> UnknownState {
        UnknownState { machine, text: text.to_owned(), states }
    }
}

impl std::fmt::Display for UnknownState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states = fsm_core::check::listed(self.states.iter().copied());
        write!(f, "`{}` is not a state of `{}`, whose states are {states}", self.text.escape_debug(), self.machine)
    }
}

impl StdError for UnknownState {}

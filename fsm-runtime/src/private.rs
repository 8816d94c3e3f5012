//! The functions and types that expanded macros use. They are not for users and may change in any release.

mod checks;

use std::any::TypeId;
use std::error::Error as StdError;
use std::future::Future;

use fsm_core::retry::RetryAdvice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::data::Data;
use crate::failure::Unreadable;
use crate::guard;

pub use self::checks::{
    Catches, Condition, IsEvent, IsTimeout, IsVerb, Pick, Returned, SearchValue, TimerWait, catches, due, inherits, is_any_caught,
    is_caught, is_event, is_in_one_machine, is_none_of, is_of_children, is_timeout, is_verb, keeps, keeps_nothing, returned, same,
    search_value,
};
pub use crate::context::{Ctx, Unchecked};
pub use crate::failure::{FailedAttempt, Failure, Retryable, RetryableRef};
pub use crate::registry::{
    Accepts, DataEntry, DelayEntry, DueFunction, EdgeEntry, Ended, GiveUpEntry, Input, Keeps, KeepsNothing, Machine, MachineEntry,
    MachineRef, NoCatch, PolicyEntry, RetryEntry, Run, Running, SearchEntry, TakesNext, Verb, VerbEntry, VerbOf, VerbRef, WaitEntry,
};
pub use crate::timeout::Timeout;
pub use fsm_core::machine::Due;
pub use {inventory, serde};

/// Checks whether bytes can be decoded as the event type `E`: `(&&Decoding::<E>::NEW).why_not(bytes)`. If `E` is not `Deserialize`, the
/// answer is `None`; another check reports that. Method lookup prefers the implementation that needs fewer references.
pub struct Decoding<E>(std::marker::PhantomData<fn() -> E>);

impl<E> Decoding<E> {
    /// A check for the type `E`.
    pub const NEW: Decoding<E> = Decoding(std::marker::PhantomData);
}

/// The check for event types that are `Deserialize`.
pub trait DecodingReadable {
    /// Returns the decoding error; `None` if the bytes can be decoded.
    fn why_not(&self, bytes: &[u8]) -> Option<String>;
}

/// The check for all other types.
pub trait DecodingAny {
    /// Returns `None`.
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

/// Decodes the event. The failure says why the payload cannot be decoded.
pub fn decode_event<E: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<E, Failure> {
    serde_json::from_slice(bytes).map_err(|error| unreadable("payload", name, &error))
}

/// Decodes the record, or returns the default if none was written yet. The failure says why the record cannot be decoded.
pub fn decode_record<R: DeserializeOwned + Default>(name: &str, bytes: Option<&[u8]>) -> Result<R, Failure> {
    let Some(bytes) = bytes else { return Ok(R::default()) };
    serde_json::from_slice(bytes).map_err(|error| unreadable("record", name, &error))
}

fn unreadable(value: &str, name: &str, why: &serde_json::Error) -> Failure {
    Failure::new(Unreadable(format!("the {value} does not decode as `{name}`: {why}")))
}

/// Encodes the record for storage. The failure says why it cannot be encoded.
pub fn encode_record<R: Serialize>(name: &str, record: &R) -> Result<Option<Vec<u8>>, Failure> {
    serde_json::to_vec(record).map(Some).map_err(|error| Failure::new(format!("the record `{name}` does not encode: {error}")))
}

/// Returns the value of a `Data<T>` parameter.
pub fn data<T: ?Sized + Send + Sync + 'static>(ctx: &Ctx<'_>) -> Data<T> {
    ctx.data::<T>()
}

/// Returns the entry of a `Data<T>` parameter.
pub const fn data_entry<T: ?Sized + Send + Sync + 'static>() -> DataEntry {
    DataEntry { name: std::any::type_name::<T>, id: TypeId::of::<T> }
}

/// The same context for a verb that names itself in it, so that `ctx.next` is checked by the compiler.
pub fn checked<'c, V>(ctx: &'c mut Ctx<'_>) -> Ctx<'c, V> {
    ctx.checked()
}

/// The answer of a `give_up_if` function; `Err` is the text of its panic.
pub type GivesUp = Result<bool, String>;

/// Calls a `give_up_if` function with the error of its verb.
pub fn give_up_if<E>(error: &E, function: fn(&E) -> bool) -> GivesUp {
    guard::guarded("its `give_up_if` function", || function(error))
}

/// The failure with the answer of the `give_up_if` function. After a panic in that, the policy decides.
pub fn judged(failure: Failure, gives_up: GivesUp) -> Failure {
    match gives_up {
        Ok(true) => failure.with_advice(RetryAdvice::Never),
        Ok(false) => failure,
        Err(panic) => failure.with_panic(panic),
    }
}

/// Returns the future unchanged. If it is not `Send`, compiling fails at the `await` that makes it so.
pub fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

/// Returns the retry advice of an error if it is a `T`; for `retryable!`.
pub fn advice_of<T: Retryable + 'static>(error: &(dyn StdError + 'static)) -> Option<RetryAdvice> {
    error.downcast_ref::<T>().map(Retryable::retry)
}

/// True if an error is a `T`; for `give_up_on`.
pub fn is_error<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    error.is::<T>()
}

/// Converts the error of a verb into a [`Failure`]: `(&&Thrown::new(error)).failure()`. It uses the error's [`Retryable`] implementation if
/// there is one. Method lookup prefers the implementation that needs fewer references.
pub struct Thrown<E> {
    error: std::cell::Cell<Option<E>>,
    // The conversion is taken where the error is wrapped, so that the compiler reports a missing one only once.
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

/// The conversion of errors that implement `Retryable`.
pub trait ThrownRetryable {
    /// Converts the error, with its own retry advice.
    fn failure(&self) -> Failure;
}

/// The conversion of all other errors.
pub trait ThrownPlain {
    /// Converts the error, without advice or, for a `Failure`, with the advice that it has.
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

/// The entry of a verb whose function has a mistake. The program does not compile, so nothing runs it.
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
    limit: None,
    heartbeat: None,
    data: &[],
    decodes: |_| None,
    run: Run::Async(|_, _| Box::pin(async { Ok(None) })),
};

/// The error of parsing a state name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownState {
    machine: &'static str,
    text: String,
    states: &'static [&'static str],
}

impl UnknownState {
    /// An error that says that `text` is none of `states`.
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

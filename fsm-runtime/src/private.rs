//! What expanded macros call. Not for users: it may change in any release.

use std::any::TypeId;
use std::error::Error as StdError;
use std::future::Future;

use fsm_core::retry::RetryAdvice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::data::Data;
use crate::failure::Failure;
use crate::timeout::Caught;

pub use crate::context::Ctx;
pub use crate::failure::{Failed, Retryable};
pub use crate::registry::{
    Accepts, DataEntry, DelayEntry, EdgeEntry, GiveUpEntry, Input, Keeps, KeepsNothing, Machine, MachineEntry, MachineRef, NoCatch,
    PolicyEntry, RetryEntry, Run, Running, Verb, VerbEntry, VerbRef,
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

/// A verb's error on its way to a [`Failure`]: `(&&Thrown::new(error)).failure()` asks [`Retryable`] where the type
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
    fn failure(&self) -> Failure;
}

/// For all other error types.
pub trait ThrownPlain {
    /// With no advice, or that of a `Failure`.
    fn failure(&self) -> Failure;
}

impl<E: Retryable + Into<Failure>> ThrownRetryable for &Thrown<E> {
    fn failure(&self) -> Failure {
        let error = self.take();
        let advice: RetryAdvice = error.retry();
        let failure: Failure = error.into();
        failure.with_advice(advice)
    }
}

impl<E: Into<Failure>> ThrownPlain for Thrown<E> {
    fn failure(&self) -> Failure {
        self.take().into()
    }
}

/// What a verb may return.
#[diagnostic::on_unimplemented(
    message = "a verb returns `Result<(), E>` with an error `E`, not `{Self}`",
    label = "returned by a verb",
    note = "every `std::error::Error + Send + Sync + 'static` is such an error, and so is `Failure`"
)]
pub trait Returned {
    /// The error type.
    type Error;
    /// The value itself.
    fn into_result(self) -> Result<(), Self::Error>;
}

impl<E: Into<Failure>> Returned for Result<(), E> {
    type Error = E;
    fn into_result(self) -> Result<(), E> {
        self
    }
}

/// What a verb returned, as a `Result`.
pub fn returned<R: Returned>(value: R) -> Result<(), R::Error> {
    value.into_result()
}

/// Says that a catch verb's event is that of the verb it catches for.
#[diagnostic::on_unimplemented(
    message = "the verb under `catch` takes `{Self}`; here it takes `Caught<{E}>`",
    note = "a catch verb takes the exhausted call: `Caught` of the event of the verb that names it"
)]
pub trait Catches<E> {}

impl<E> Catches<E> for Caught<E> {}

/// Fails to compile unless `C` is `Caught<E>`.
pub const fn catches<C: Catches<E>, E>() {}

/// Says that a verb's event is the one of the `on` block it stands in.
#[diagnostic::on_unimplemented(
    message = "this verb takes `{Self}`; its `on` block is for `{E}`",
    note = "every verb in an `on` block takes that very type; declare the others outside of it"
)]
pub trait IsEvent<E> {}

impl<E> IsEvent<E> for E {}

/// Fails to compile unless `A` is `E`.
pub const fn is_event<A: IsEvent<E>, E>() {}

/// Says that a verb can stand behind `after`.
#[diagnostic::on_unimplemented(
    message = "a timer leads to a verb that takes `{Self}`; it must take `Timeout`",
    note = "a verb behind `after` takes `fsm::Timeout`, the event that a timer delivers"
)]
pub trait IsTimeout {}

impl IsTimeout for Timeout {}

/// Fails to compile unless `E` is `Timeout`.
pub const fn is_timeout<E: IsTimeout>() {}

/// Says that two paths name one verb.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{V}` are two verbs of one name: within a machine names are unique",
    note = "rename one of the two functions"
)]
pub trait IsVerb<V> {}

impl<V> IsVerb<V> for V {}

/// Fails to compile unless `A` and `V` are one verb.
pub const fn is_verb<A: IsVerb<V>, V>() {}

/// Fails to compile unless `V`, and the verb that catches for it, can run in a machine that keeps `R`.
pub const fn keeps<V: Verb + Keeps<R>, R>()
where
    V::Catch: Keeps<R>,
{
}

/// Fails to compile unless `V`, and the verb that catches for it, can run in a machine without a record.
pub const fn keeps_nothing<V: Verb + KeepsNothing>()
where
    V::Catch: KeepsNothing,
{
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

/// Whether a verb has no policy of its own, so that it gets its machine's.
pub const fn inherits(verb: &VerbEntry) -> bool {
    matches!(verb.retry, RetryEntry::Inherit)
}

/// Whether the event type named `caught` is `Caught` of the one named `event`, or of any JSON.
pub const fn is_caught(caught: &str, event: &str) -> bool {
    if same(caught, "Caught<Value>") {
        return true;
    }
    let (caught, event) = (caught.as_bytes(), event.as_bytes());
    let before = b"Caught<";
    if caught.len() != before.len() + event.len() + 1 {
        return false;
    }
    let mut i = 0;
    while i < caught.len() {
        let expected = if i < before.len() {
            before[i]
        } else if i < caught.len() - 1 {
            event[i - before.len()]
        } else {
            b'>'
        };
        if caught[i] != expected {
            return false;
        }
        i += 1;
    }
    true
}

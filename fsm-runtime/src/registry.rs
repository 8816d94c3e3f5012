//! The output of the macros: schema entries as data, collected by `inventory`, and the traits that connect names and types.

use std::any::TypeId;
use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use fsm_core::machine::Due;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Ctx, Unchecked};
use crate::failure::{FailedAttempt, Failure};

/// A declared machine. `fsm!` creates one type that implements this trait for each machine.
pub trait Machine: Send + Sync + 'static {
    /// The state enum, with one variant for each state.
    type State: Copy + Eq + Hash + Debug + Display + FromStr + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The record that an instance keeps; `()` for a machine without `keeps`.
    type Record: Default + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The name of the machine in the database.
    const NAME: &'static str;
    /// The registered schema entry.
    #[doc(hidden)]
    const ENTRY: &'static MachineEntry;
}

/// The machine accepts the event type `E` from senders. `fsm!` implements it for the event types of the edges, except timers.
#[diagnostic::on_unimplemented(
    message = "the machine `{Self}` does not accept the event `{E}`",
    label = "no verb of `{Self}` takes this",
    note = "a machine accepts the event types of the verbs on its edges; `Timeout` is delivered by its timers alone"
)]
pub trait Accepts<E>: Machine {
    /// The name of the event type in the database.
    #[doc(hidden)]
    const EVENT: &'static str;
}

/// An event type that the machine `M` accepts. It is implemented for every `E` for which `M` is [`Accepts<E>`](Accepts).
pub trait EventFor<M>: Serialize + Send {
    /// The name of the event type in the database.
    #[doc(hidden)]
    const EVENT: &'static str;
}

impl<M: Accepts<E>, E: Serialize + Send> EventFor<M> for E {
    const EVENT: &'static str = <M as Accepts<E>>::EVENT;
}

/// The type that `#[verb]` creates beside a function, with the same name.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a verb", note = "a verb is an `async fn` with `#[verb]`")]
pub trait Verb {
    /// The event type that the verb takes.
    type Event;
    /// The verb that runs when the attempts are exhausted; [`NoCatch`] if there is none.
    type Catch;
    /// The verb itself if its context checks `ctx.next`; otherwise [`Unchecked`].
    type Checked;
    /// The name of the event type in the database.
    const EVENT: &'static str;
    /// The registered schema entry.
    const ENTRY: &'static VerbEntry;
}

/// The verb can run in a machine that keeps `R`: it takes `&mut R` or no record.
#[diagnostic::on_unimplemented(
    message = "the verb `{Self}` takes a record other than the machine's, which keeps `{R}`",
    note = "take `&mut {R}` in the verb, or name the verb's type under `keeps` in `fsm!`"
)]
pub trait Keeps<R> {}

/// The verb can run in a machine without `keeps`: it takes no record.
#[diagnostic::on_unimplemented(
    message = "the verb `{Self}` takes a record, and its machine keeps none",
    note = "add `keeps` and the type of that record to `fsm!`, or take no `&mut` in the verb"
)]
pub trait KeepsNothing {}

/// The verb stands in the machine `M`. `fsm!` implements it for the verbs of its edges.
#[diagnostic::on_unimplemented(
    message = "the verb `{Self}` stands on no edge of a machine of this crate, so that `ctx.next` cannot be checked for it",
    note = "`Ctx<'_, {Self}>` is for a verb on the edges of one machine; other verbs, also catch verbs, take `Ctx<'_>`"
)]
pub trait VerbOf<M> {}

/// After the verb, an instance of the machine `M` takes the event `E`. `fsm!` implements it for the verbs of its edges.
#[diagnostic::on_unimplemented(
    message = "the event `{E}` cannot come next after the verb `{Self}`",
    label = "no edge accepts this event there",
    note = "`ctx.next` takes an event that an edge out of the state accepts in which the instance then is"
)]
pub trait TakesNext<M, E> {}

impl VerbOf<()> for Unchecked {}
impl<E> TakesNext<(), E> for Unchecked {}

/// The catch verb of a verb without `catch`.
pub enum NoCatch {}

impl<R> Keeps<R> for NoCatch {}
impl KeepsNothing for NoCatch {}

/// A registered verb.
pub struct VerbEntry {
    /// The name of the function.
    pub name: &'static str,
    /// The module of the function.
    pub module: &'static str,
    /// The doc comment.
    pub docs: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line of the function's name.
    pub line: u32,
    /// The name of the event type.
    pub event: &'static str,
    /// The id of the event type.
    pub event_type: fn() -> TypeId,
    /// The timeout of one attempt.
    pub timeout: Option<Duration>,
    /// The retry policy.
    pub retry: RetryEntry,
    /// The name of the limit.
    pub limit: Option<&'static str>,
    /// The time after which an attempt that has shown no progress ends.
    pub heartbeat: Option<Duration>,
    /// The `Data<T>` parameters.
    pub data: &'static [DataEntry],
    /// Returns the reason why bytes cannot be decoded as the event; `None` if they can.
    pub decodes: fn(&[u8]) -> Option<String>,
    /// The function that runs one attempt.
    pub run: Run,
}

/// The function that runs one attempt: it decodes the event and the record, and calls the verb.
#[derive(Clone, Copy)]
pub enum Run {
    /// The verb is an `async fn`.
    Async(RunAsync),
    /// The verb is a plain `fn` that blocks its thread.
    Blocking(RunBlocking),
}

/// Runs an `async fn`.
pub type RunAsync = for<'a, 'c> fn(&'a mut Ctx<'c>, Input<'a>) -> Running<'a>;

/// Runs a plain `fn`.
pub type RunBlocking = for<'a, 'c> fn(&'a mut Ctx<'c>, Input<'a>) -> Ended;

/// The result of an attempt: the encoded record if the verb takes one.
pub type Ended = Result<Option<Vec<u8>>, Failure>;

/// A running attempt.
pub type Running<'a> = Pin<Box<dyn Future<Output = Ended> + Send + 'a>>;

/// The input of an attempt, still encoded.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The payload of the event.
    pub event: &'a [u8],
    /// The record of the instance; `None` if it was not written yet.
    pub record: Option<&'a [u8]>,
}

/// The type of a `Data<T>` parameter.
pub struct DataEntry {
    /// The name of the type, for the message when its value is missing.
    pub name: fn() -> &'static str,
    /// The id of the type.
    pub id: fn() -> TypeId,
}

/// The retry directive of a verb, or the default of a machine.
#[derive(Clone, Copy)]
pub enum RetryEntry {
    /// No directive: a verb uses the machine's default, and a machine without a default does not retry.
    Inherit,
    /// `none`: no retries.
    Never,
    /// A retry policy.
    Policy(&'static PolicyEntry),
}

/// A registered retry policy.
pub struct PolicyEntry {
    /// The maximum number of executions, including the first; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// The wait before the first retry.
    pub min: Duration,
    /// The maximum computed wait.
    pub max: Duration,
    /// The factor between two waits.
    pub backoff: f64,
    /// The maximum share of a wait that jitter adds.
    pub jitter: f64,
    /// The maximum time between the due time of the first attempt and the start of the last one.
    pub within: Option<Duration>,
    /// The error types that are not retried.
    pub give_up_on: &'static [GiveUpEntry],
    /// The function that says whether an error of the verb is permanent, as written in the source.
    pub give_up_if: Option<&'static str>,
    /// The user's delay function.
    pub delay: Option<DelayEntry>,
    /// The verb that runs when the attempts are exhausted.
    pub catch: Option<&'static VerbEntry>,
}

/// An error type that is not retried.
pub struct GiveUpEntry {
    /// The name as written in the source.
    pub name: &'static str,
    /// True if an error is of this type.
    pub is: fn(&(dyn StdError + 'static)) -> bool,
}

/// A delay function.
pub struct DelayEntry {
    /// The name as written in the source.
    pub name: &'static str,
    /// The function.
    pub function: fn(&FailedAttempt<'_>) -> Option<Duration>,
}

/// A registered machine.
pub struct MachineEntry {
    /// The name in the database.
    pub name: &'static str,
    /// The doc comment.
    pub docs: &'static str,
    /// The module.
    pub module: &'static str,
    /// The type of the record, as written in the source.
    pub record: Option<&'static str>,
    /// The default retry policy, for verbs without one of their own.
    pub retry: RetryEntry,
    /// The edges: starts first, then in the order of declaration.
    pub edges: &'static [EdgeEntry],
    /// The states in which an instance is completed.
    pub ends: &'static [&'static str],
    /// The search fields; `None` without `search`.
    pub search: Option<SearchEntry>,
}

/// The search fields of a machine.
#[derive(Debug, Clone, Copy)]
pub struct SearchEntry {
    /// The names of the fields of the record.
    pub names: &'static [&'static str],
    /// Their values as texts, in the same order.
    pub values: SearchFunction,
    /// The field whose values share the slots evenly.
    pub fair_by: Option<&'static str>,
}

/// Returns the values of the search fields, from the encoded record.
pub type SearchFunction = fn(&[u8]) -> Result<Vec<String>, Failure>;

/// A registered edge. Its event is the event of its verb.
pub struct EdgeEntry {
    /// The state that the edge leaves; `None` for a start.
    pub from: Option<&'static str>,
    /// The verb that carries out the edge. Its name is the state that the edge enters, unless the edge stays.
    pub verb: &'static VerbEntry,
    /// True for an internal transition, which does not leave the state.
    pub stays: bool,
    /// True if the event does not wait for a retry, nor for an operator.
    pub interrupts: bool,
    /// The wait of a timer; `None` for an edge on an event.
    pub after: Option<WaitEntry>,
}

impl EdgeEntry {
    /// An edge on an event into the state of the verb's name.
    pub const fn new(from: Option<&'static str>, verb: &'static VerbEntry) -> EdgeEntry {
        EdgeEntry { from, verb, stays: false, interrupts: false, after: None }
    }
}

/// The wait of a timer.
#[derive(Debug, Clone, Copy)]
pub enum WaitEntry {
    /// The same for all instances.
    Fixed(Duration),
    /// The result of a function of the record.
    Computed {
        /// The name as written in the source.
        name: &'static str,
        /// Decodes the record and calls the function.
        due: DueFunction,
    },
}

/// Computes when a timer is due, from the encoded record.
pub type DueFunction = fn(Option<&[u8]>) -> Result<Due, Failure>;

/// A reference to a verb's entry, which `inventory` collects.
pub struct VerbRef(pub &'static VerbEntry);
/// A reference to a machine's entry, which `inventory` collects.
pub struct MachineRef(pub &'static MachineEntry);

inventory::collect!(VerbRef);
inventory::collect!(MachineRef);

//! What the macros emit: schema entries as data, found through `inventory`, and the traits that tie names to types.

use std::any::TypeId;
use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Ctx;
use crate::failure::{FailedAttempt, Failure};

/// A declared graph. `fsm!` makes one type for each machine that implements this.
pub trait Machine: Send + Sync + 'static {
    /// One variant a state.
    type State: Copy + Eq + Hash + Debug + Display + FromStr + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What the instance itself remembers; `()` without `keeps`.
    type Record: Default + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Its name in the database.
    const NAME: &'static str;
    /// Its registered schema entry.
    #[doc(hidden)]
    const ENTRY: &'static MachineEntry;
}

/// Says that a machine takes this event type from its senders.
#[diagnostic::on_unimplemented(
    message = "the machine `{Self}` does not accept the event `{E}`",
    label = "no verb of `{Self}` takes this",
    note = "a machine accepts the event types of the verbs on its edges; `Timeout` is delivered by its timers alone"
)]
pub trait Accepts<E>: Machine {
    /// The event type's name in the database.
    #[doc(hidden)]
    const EVENT: &'static str;
}

/// An event that the machine `M` takes: `Accepts` seen from the event.
pub trait EventFor<M>: Serialize + Send {
    /// The event type's name in the database.
    #[doc(hidden)]
    const EVENT: &'static str;
}

impl<M: Accepts<E>, E: Serialize + Send> EventFor<M> for E {
    const EVENT: &'static str = <M as Accepts<E>>::EVENT;
}

/// The type that `#[verb]` makes beside a function, of the same name.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a verb", note = "a verb is an `async fn` with `#[verb]`")]
pub trait Verb {
    /// The event it takes.
    type Event;
    /// The verb that runs once its attempts are exhausted; [`NoCatch`] without one.
    type Catch;
    /// The event type's name in the database.
    const EVENT: &'static str;
    /// Its registered schema entry.
    const ENTRY: &'static VerbEntry;
}

/// Says that a verb can run in a machine that keeps `R`: it takes `&mut R`, or no record at all.
#[diagnostic::on_unimplemented(
    message = "the verb `{Self}` takes a record other than the machine's, which keeps `{R}`",
    note = "take `&mut {R}` in the verb, or name the verb's type under `keeps` in `fsm!`"
)]
pub trait Keeps<R> {}

/// Says that a verb can run in a machine without `keeps`: it takes no record.
#[diagnostic::on_unimplemented(
    message = "the verb `{Self}` takes a record, and its machine keeps none",
    note = "add `keeps` and the type of that record to `fsm!`, or take no `&mut` in the verb"
)]
pub trait KeepsNothing {}

/// Stands where a verb names no `catch`.
pub enum NoCatch {}

impl<R> Keeps<R> for NoCatch {}
impl KeepsNothing for NoCatch {}

/// A verb as registered.
pub struct VerbEntry {
    /// The function's name.
    pub name: &'static str,
    /// The module it stands in.
    pub module: &'static str,
    /// Its doc comment.
    pub docs: &'static str,
    /// The file it stands in.
    pub file: &'static str,
    /// The line of its name.
    pub line: u32,
    /// The name of the event type it takes.
    pub event: &'static str,
    /// The identity of that type.
    pub event_type: fn() -> TypeId,
    /// The limit on one attempt.
    pub timeout: Option<Duration>,
    /// Its retry policy.
    pub retry: RetryEntry,
    /// The `Data<T>` it needs.
    pub data: &'static [DataEntry],
    /// Why these bytes are no event of its type; `None` when they are one.
    pub decodes: fn(&[u8]) -> Option<String>,
    /// Runs one attempt.
    pub run: Run,
}

/// Runs one attempt: reads event and record, calls the function, gives back the record if the function takes one.
pub type Run = for<'a, 'c> fn(&'a mut Ctx<'c>, Input<'a>) -> Running<'a>;

/// An attempt that runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Option<Vec<u8>>, Failure>> + Send + 'a>>;

/// What an attempt is given, still encoded.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The event's payload.
    pub event: &'a [u8],
    /// The instance's record; `None` until it was first written.
    pub record: Option<&'a [u8]>,
}

/// A type that a verb takes as `Data<T>`.
pub struct DataEntry {
    /// Its name, for the message when it is missing.
    pub name: fn() -> &'static str,
    /// Its identity.
    pub id: fn() -> TypeId,
}

/// What a verb, or a machine as default, says of retries.
#[derive(Clone, Copy)]
pub enum RetryEntry {
    /// Nothing: the machine's default, else none.
    Inherit,
    /// `none`.
    Never,
    /// A policy.
    Policy(&'static PolicyEntry),
}

/// A retry policy as registered.
pub struct PolicyEntry {
    /// Executions including the first; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// The wait before the first retry.
    pub min: Duration,
    /// No computed wait is longer.
    pub max: Duration,
    /// The coefficient.
    pub backoff: f64,
    /// The share that chance may add.
    pub jitter: f64,
    /// No attempt starts later than this after the first.
    pub within: Option<Duration>,
    /// Error types that are not retried.
    pub give_up_on: &'static [GiveUpEntry],
    /// The user's own delay function.
    pub delay: Option<DelayEntry>,
    /// The verb that runs once attempts are exhausted.
    pub catch: Option<&'static VerbEntry>,
}

/// An error type that is not retried.
pub struct GiveUpEntry {
    /// Its name as written.
    pub name: &'static str,
    /// Whether an error is one.
    pub is: fn(&(dyn StdError + 'static)) -> bool,
}

/// A delay function.
pub struct DelayEntry {
    /// Its name as written.
    pub name: &'static str,
    /// The function.
    pub function: fn(&FailedAttempt<'_>) -> Option<Duration>,
}

/// A machine as registered.
pub struct MachineEntry {
    /// Its name in the database.
    pub name: &'static str,
    /// Its doc comment.
    pub docs: &'static str,
    /// The module it stands in.
    pub module: &'static str,
    /// The type of its record, as written.
    pub record: Option<&'static str>,
    /// The default policy for verbs that have none of their own.
    pub retry: RetryEntry,
    /// Starts first, then in the order of declaration.
    pub edges: &'static [EdgeEntry],
    /// States in which an instance is completed.
    pub ends: &'static [&'static str],
}

/// An edge as registered. Its event is its verb's.
pub struct EdgeEntry {
    /// The state it leaves; `None` is a start.
    pub from: Option<&'static str>,
    /// The verb that carries it out, whose name is the state it enters.
    pub verb: &'static VerbEntry,
    /// A durable timer.
    pub after: Option<Duration>,
}

/// What `inventory` collects: a reference to each verb's entry.
pub struct VerbRef(pub &'static VerbEntry);
/// What `inventory` collects: a reference to each machine's entry.
pub struct MachineRef(pub &'static MachineEntry);

inventory::collect!(VerbRef);
inventory::collect!(MachineRef);

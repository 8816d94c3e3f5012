//! The macros `#[verb]`, `#[retry]` and `fsm!`. Each parses its tokens into a model, checks the model and expands it; most of the output is
//! data.

mod machine;
mod mistake;
mod names;
mod retry;
mod verb;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod golden;

use proc_macro::TokenStream;

/// Makes a free `async fn` (or, with `blocking`, a `fn`) a verb: the function that carries out the edges into the state that has its name.
///
/// The function can still be called directly. The macro also creates a type with the same name, so that `fsm!` can name the verb by its
/// path, and registers the verb for `fsm::schema()`.
///
/// The parameters, in this order: `ctx: &mut Ctx<'_>` (optional; `&mut Ctx<'_, name>` with the verb's own name lets the compiler check
/// `ctx.next`), `&mut R` with the machine's record (optional), any number of `Data<T>`,
/// and the event, by value. The function returns `Result`, or `Result<(), E>` with any error type.
///
/// | option | meaning |
/// |---|---|
/// | `timeout = "30s"` | the limit on one attempt; without it, an attempt may take any time |
/// | `heartbeat = "30s"` | an attempt fails if it calls `ctx.progress` not at all for this long |
/// | `limit = "stripe"` | the calls run under the limit of this name, which `Builder::limit` declares |
/// | `blocking` | the function is a plain `fn` that may block; it runs on a thread of its own, which a timeout cannot stop |
#[proc_macro_attribute]
pub fn verb(options: TokenStream, item: TokenStream) -> TokenStream {
    verb::expand(options.into(), item.into()).into()
}

/// Sets the retry policy of a verb. It may be above or below `#[verb]`.
///
/// | form | retries |
/// |---|---|
/// | `#[retry("5s")]` | every 5 s, without a limit |
/// | `#[retry("5s", "10m")]` | after 5 s, 10 s, 20 s … at most 10 min, without a limit |
/// | `#[retry(10, "5s")]` | ten, 5 s apart |
/// | `#[retry(10, "5s", "1h")]` | ten, doubling, at most 1 h apart |
/// | `#[retry(none)]` | none, although the machine has a default |
///
/// The named options can be combined with the short forms: `retries = 10` or `max_attempts = 11`, `min = "5s"`, `max = "1h"` (the default
/// if there is only a `min`), `backoff = 2.0`, `jitter = 0.1`, `within = "24h"`, `give_up_on(CardDeclined, Fraud)`,
/// `give_up_if = is_permanent`, `delay = my_delay` instead of `min`, `max` and `backoff`, `catch = recover`.
///
/// `give_up_on` compares the types of the error itself and of its sources. An error behind thiserror's `#[error(transparent)]` is not among
/// the sources and is not found. `give_up_if` names a `fn(&E) -> bool`, where `E` is the error type of the verb. True means no further
/// attempt.
#[proc_macro_attribute]
pub fn retry(options: TokenStream, item: TokenStream) -> TokenStream {
    retry::above(options.into(), item.into()).into()
}

/// Declares a machine: its states, named after the verbs that enter them, and the edges between them.
///
/// ```text
/// fsm! {
///     /// An online payment.
///     pub machine Payment = "payment" {
///         retry(3, "1s", "1m");               // the default policy of its verbs
///         keeps PaymentRecord;                // the record of an instance; also: keeps PaymentRecord, search(customer), fair_by = customer;
///         start created;
///         created -> paid | failed;
///         created after "30m" -> expired;     // a durable timer
///         any(created, paid) -> disputed;
///         paid stays on address_changed;      // an internal transition: the state and its timer stay
///         paid after settlement -> settled;   // a computed timer: fn(&PaymentRecord) -> Duration, or -> Timestamp
///         on Cancel {                         // several verbs take this event type
///             created -> cancelled interrupts;   // does not wait for a retry, nor for an operator
///             paid -> refunding;
///         }
///         end failed, expired, cancelled, settled;
///     }
/// }
/// ```
///
/// `paid stays on address_changed` and the self-edge `paid -> paid` both leave the instance in `paid`. The internal transition does not leave the
/// state, and the timers of the state go on. The self-edge leaves the state and enters it again, by the verb `paid`, and the timers start anew.
///
/// A start may stand in an `on` block too: `on Step { start opened; opened -> active; }`.
///
/// Creates the type `Payment`, which implements `Machine`, and the enum `PaymentState` with one variant for each state.
#[proc_macro]
pub fn fsm(graph: TokenStream) -> TokenStream {
    machine::expand(graph.into()).into()
}

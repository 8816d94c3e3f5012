//! `#[verb]`, `#[retry]` and `fsm!`: tokens in, tokens out. Each is parse -> model -> check -> expand, and emits data.

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

/// Makes a free `async fn` a verb: the function that carries out the edges into the state of its name.
///
/// The function stays callable as it is. Beside it stands a type of the same name, so that `fsm!` can name the verb by
/// path, and an entry in `fsm::schema()`.
///
/// Parameters, in this order: `ctx: &mut Ctx<'_>` (optional, first), `&mut R` (optional: the machine's record), any number
/// of `Data<T>`, and last, by value, the event. It returns `Result`, or `Result<(), E>` with any error type.
///
/// `#[verb(timeout = "30s")]` limits one attempt.
#[proc_macro_attribute]
pub fn verb(options: TokenStream, item: TokenStream) -> TokenStream {
    verb::expand(options.into(), item.into()).into()
}

/// The retry policy of a verb, above or below `#[verb]`.
///
/// | form | retries |
/// |---|---|
/// | `#[retry("5s")]` | every 5 s, for ever |
/// | `#[retry("5s", "10m")]` | after 5 s, 10 s, 20 s … at most 10 min, for ever |
/// | `#[retry(10, "5s")]` | ten, 5 s apart |
/// | `#[retry(10, "5s", "1h")]` | ten, doubling, at most 1 h apart |
/// | `#[retry(none)]` | none, although the machine has a default |
///
/// The named form says the rest, and mixes with the short one: `retries = 10` or `max_attempts = 11`, `min = "5s"`,
/// `max = "1h"` (1 h if `min` stands alone), `backoff = 2.0`, `jitter = 0.1`, `within = "24h"`,
/// `give_up_on(CardDeclined, Fraud)`, `delay = my_delay` instead of min, max and backoff, `catch = recover`.
#[proc_macro_attribute]
pub fn retry(options: TokenStream, item: TokenStream) -> TokenStream {
    retry::above(options.into(), item.into()).into()
}

/// Declares a machine: its states, named by the verbs that enter them, and the edges between.
///
/// ```text
/// fsm! {
///     /// What it is for.
///     pub machine Payment = "payment" {
///         retry(3, "1s", "1m");               // the default policy of its verbs
///         keeps PaymentRecord;                // what an instance remembers
///         start created;
///         created -> paid | failed;
///         created after "30m" -> expired;     // a durable timer
///         any(created, paid) -> disputed;
///         on Cancel {                         // several verbs take this event type
///             created -> cancelled;
///             paid -> refunding;
///         }
///         end failed, expired, cancelled;
///     }
/// }
/// ```
///
/// Makes the type `Payment`, which implements `Machine`, and the enum `PaymentState` with one variant a state.
#[proc_macro]
pub fn fsm(graph: TokenStream) -> TokenStream {
    machine::expand(graph.into()).into()
}

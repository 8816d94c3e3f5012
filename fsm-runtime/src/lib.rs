//! The runtime of durable-fsm: the public API, the workers and the store around the pure decisions of `fsm-core`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!(
    "durable-fsm needs a database: turn on its feature `sqlite` (embedded in the program) or `postgres`, or both. \
     Both are on by default; with `default-features = false`, name one: features = [\"sqlite\"]"
);

#[doc(no_inline)]
pub use jiff;
#[doc(no_inline)]
pub use sqlx;

pub mod admin;
#[cfg(feature = "aead")]
pub mod aead;
mod canonical;
mod catalog;
pub mod children;
pub mod client;
mod clock;
pub mod codec;
mod committer;
pub mod context;
pub mod data;
mod data_protection;
pub mod doctor;
pub mod drift;
mod encode;
mod engine;
pub mod engine_access;
pub mod error;
mod failing;
pub mod failure;
mod families;
mod finder;
mod guard;
pub mod handle;
pub mod health;
mod in_flight;
mod interrupts;
pub mod limit;
mod limits;
pub mod metrics;
mod notifications;
mod observer;
mod outage;
mod outbox;
mod priority_shares;
#[doc(hidden)]
pub mod private;
mod process;
pub mod progress;
mod pruner;
mod reads;
mod reconciler;
mod reconciler_state;
pub mod redact;
pub mod registry;
pub mod running;
pub mod runtime;
pub mod schedule;
pub mod schema;
mod search;
mod session;
mod start;
pub mod store;
mod supervise;
mod sweeper;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timeout;
mod traces;
mod wake_up;
mod watchers;
mod worker;

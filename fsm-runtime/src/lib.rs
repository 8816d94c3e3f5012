//! The runtime of durable-fsm: the public API, the workers around the pure decisions of `fsm-core` and the tables of `fsm-store`.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
mod engines;
pub mod error;
mod failing;
pub mod failure;
mod families;
mod family_notices;
mod finder;
mod guard;
pub mod handle;
pub mod health;
mod heartbeats;
mod in_flight;
mod interrupts;
pub mod limit;
mod limits;
pub mod metrics;
mod notifications;
mod observer;
mod outage;
mod outbox;
mod partition_outbox;
mod partition_pages;
mod permit_state;
mod permits;
mod preference;
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
mod supervise;
mod sweeper;
#[cfg(feature = "testing")]
pub mod testing;
pub mod timeout;
mod traces;
mod wake_up;
mod watchers;
mod worker;

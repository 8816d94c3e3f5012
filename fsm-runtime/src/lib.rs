//! The shell of durable-fsm: registry, client, worker, sweeper, clock and store around the pure decisions of `fsm-core`.

pub mod context;
pub mod data;
pub mod failure;
#[doc(hidden)]
pub mod private;
pub mod registry;
pub mod store;
pub mod timeout;

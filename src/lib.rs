//! Durable state machines: draw your states, write one async function for each, send events.

pub use fsm_core::retry::RetryAdvice;
pub use fsm_core::time::Timestamp;
pub use fsm_macros::{fsm, retry, verb};
pub use fsm_runtime::context::Ctx;
pub use fsm_runtime::data::Data;
pub use fsm_runtime::failure::{Failed, Failure, Result, Retryable};
pub use fsm_runtime::registry::Machine;
pub use fsm_runtime::timeout::{Caught, Timeout};

#[doc(hidden)]
pub use fsm_runtime::private as __private;

/// What a program that declares machines needs: `use fsm::prelude::*`.
pub mod prelude {
    pub use std::time::Duration;

    pub use crate::{Caught, Ctx, Data, Failed, Failure, Result, Timeout, Timestamp, fsm, retry, verb};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

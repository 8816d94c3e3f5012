//! The public API as the product page states it, compiled and run. A change of any name, type or meaning here would break programs of
//! users.

#![allow(missing_docs, clippy::unwrap_used, reason = "the program of a user, and a test")]

mod families;
mod flow;
mod handle;
mod limits;
mod macros;
mod operations;
mod payment;
mod schedules;
mod time_and_waits;
mod verbs;

//! The pure half of durable-fsm: values, decisions and the commit protocol, without IO or a clock.
//!
//! Its functions decide the next change of an instance, from values to values. The runtime reads those values from a
//! database, calls a decision, and writes the changes that it returned.

pub mod call;
pub mod changes;
pub mod check;
pub mod commit;
pub mod decide;
pub mod diagram;
pub mod duration;
pub mod fair;
pub mod family;
pub mod hash;
pub mod ids;
pub mod instance;
pub mod limit;
pub mod machine;
pub mod outcome;
pub mod partition;
pub mod permit;
pub mod preference;
pub mod priority;
pub mod process;
pub mod retry;
pub mod retry_schedule;
pub mod search;
pub mod time;
pub mod trace;

#[cfg(test)]
mod fuzz;

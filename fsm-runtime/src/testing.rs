//! What tests need: the same engine with a clock that they hold, and a PostgreSQL that is gone afterwards.

mod bed;
#[cfg(unix)]
pub mod cluster;
#[cfg(unix)]
mod fresh;
pub mod scale;
#[cfg(unix)]
mod site;

pub use bed::{Bed, BedBuilder};

pub use crate::clock::set_ahead as set_clock_ahead;

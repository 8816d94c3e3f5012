//! What tests need: the same engine with a clock that they hold, a PostgreSQL that is gone afterwards, and deaths at every border.

mod bed;
#[cfg(unix)]
pub mod cluster;
mod crash;
mod effects;
mod end;
#[cfg(unix)]
mod fresh;
pub mod scale;
#[cfg(unix)]
mod site;

pub use bed::{TestBed, TestBedBuilder};
pub use crash::Crashes;
pub use effects::Effects;

pub use crate::clock::set_ahead as set_clock_ahead;

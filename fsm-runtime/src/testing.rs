//! Tools for tests: the engine under a test's clock, temporary PostgreSQL servers, and crashes at every point.

mod bed;
mod crash;
mod database;
mod effects;
mod end;
mod examination;
mod failures;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub mod scale;

pub use bed::{TestBed, TestBedBuilder};
pub use crash::Crashes;
pub use effects::Effects;

pub use crate::clock::set_ahead as set_clock_ahead;
#[cfg(unix)]
pub use fsm_store::testing::cluster;

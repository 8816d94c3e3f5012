//! Databases for tests: temporary PostgreSQL servers, empty databases, and large ones.

#[cfg(unix)]
pub mod cluster;
mod empty;
#[cfg(all(unix, feature = "postgres"))]
mod fresh;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub mod scale;
#[cfg(unix)]
mod site;

pub use empty::{EmptyDatabase, on_each, rows};
#[cfg(all(unix, feature = "postgres"))]
pub use fresh::{Fresh, Server};

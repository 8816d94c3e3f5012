//! What tests need: the same engine with a clock that they hold, and a PostgreSQL that is gone afterwards.

#[cfg(unix)]
pub mod cluster;
#[cfg(unix)]
mod site;

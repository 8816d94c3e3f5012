//! `cargo xtask faults`: real faults on real processes, with a PostgreSQL and a PgBouncer of their own.

use crate::step::{Failed, cargo, run as run_step};
use crate::{pgbouncer, postgres};

/// Runs the scenarios that `args` name, else all of them. Longer than a moment, they run in release mode.
pub fn run(args: &[String]) -> Result<(), Failed> {
    postgres::ensure()?;
    pgbouncer::ensure()?;
    let is_short = args.iter().any(|word| word == "--short");
    let mode: &[&str] = if is_short { &[] } else { &["--release"] };
    run_step(cargo(&["run", "--quiet", "--package", "fsm-faults"]).args(mode).arg("--").args(args))
}

/// The short form of all of them.
pub fn short() -> Result<(), Failed> {
    run(&["--short".to_owned()])
}

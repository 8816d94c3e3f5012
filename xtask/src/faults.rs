//! `cargo xtask faults`: real faults on real processes, with a PostgreSQL, a PgBouncer and a Patroni cluster of their own.

use crate::step::{Failed, cargo, run as run_step};
use crate::{patroni, pgbouncer, postgres};

/// Runs the scenarios that `args` name, else all of them. Longer than a moment, they run in release mode.
pub fn run(args: &[String]) -> Result<(), Failed> {
    let is_named = |name: &str| args.iter().any(|word| word == name);
    // All others are options, their numbers, and databases.
    let names = args.iter().filter(|word| word.starts_with(char::is_alphabetic) && !["sqlite", "postgres"].contains(&word.as_str()));
    let names_any = names.count() > 0;
    postgres::ensure()?;
    if !names_any || is_named("pooler") {
        pgbouncer::ensure()?;
    }
    if is_named("failover") {
        patroni::ensure()?;
    } else if !names_any && let Err(missing) = patroni::ensure() {
        println!("    SKIPPED: `failover`, for {missing}");
    }
    let is_short = args.iter().any(|word| word == "--short");
    let mode: &[&str] = if is_short { &[] } else { &["--release"] };
    run_step(cargo(&["run", "--quiet", "--package", "fsm-faults"]).args(mode).arg("--").args(args))
}

/// Mixes faults at random for as long as `args` say.
pub fn soak(args: &[String]) -> Result<(), Failed> {
    let words = std::iter::once("soak".to_owned()).chain(args.iter().cloned());
    run(&words.collect::<Vec<_>>())
}

/// The short form of all of them.
pub fn short() -> Result<(), Failed> {
    run(&["--short".to_owned()])
}

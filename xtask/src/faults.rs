//! `cargo xtask faults`: runs the fault scenarios, with a PostgreSQL, a PgBouncer and a Patroni cluster of their own.

use std::process::Command;

use crate::step::{Failed, cargo, run as run_step};
use crate::{patroni, pgbouncer, postgres};

/// The package, and its program.
const NAME: &str = "fsm-faults";

/// Runs the scenarios that `args` name, or all of them. Runs of full length use the release profile.
pub fn run(args: &[String]) -> Result<(), Failed> {
    let is_named = |name: &str| args.iter().any(|word| word == name);
    // The other arguments are options, numbers and databases.
    let names = args.iter().filter(|word| word.starts_with(char::is_alphabetic) && !["sqlite", "postgres"].contains(&word.as_str()));
    let names_a_scenario = names.count() > 0;
    postgres::ensure()?;
    if !names_a_scenario || is_named("pooler") {
        pgbouncer::ensure()?;
    }
    if is_named("failover") {
        patroni::ensure()?;
    } else if !names_a_scenario && let Err(missing) = patroni::ensure() {
        println!("    SKIPPED: `failover`, for {missing}");
    }
    if args.iter().any(|word| word == "--short") {
        // With the features that the tests were built with, which are those of examples too. Otherwise everything is built again.
        run_step(&mut cargo(&["build", "--workspace", "--bin", NAME, "--examples"]))?;
        let program = std::env::current_exe().map_err(Failed::because)?.with_file_name(NAME);
        return run_step(Command::new(program).args(args));
    }
    run_step(cargo(&["run", "--quiet", "--release", "--package", NAME, "--"]).args(args))
}

/// Runs the soak, a random mix of faults, for as long as `args` say.
pub fn soak(args: &[String]) -> Result<(), Failed> {
    let words = std::iter::once("soak".to_owned()).chain(args.iter().cloned());
    run(&words.collect::<Vec<_>>())
}

/// Runs all scenarios in their short form.
pub fn short() -> Result<(), Failed> {
    run(&["--short".to_owned()])
}

//! `cargo xtask ci`: all checks before a merge. A failed step does not prevent the next ones.

use std::time::{Duration, Instant};

use crate::step::{Failed, cargo, run as run_step};
use crate::{dependencies, examples, faults, features, publish, simulate, test};

type Step = (&'static str, fn() -> Result<(), Failed>);

// Each step but `features` uses the whole workspace, so that each dependency has one set of features and is built once.
const STEPS: [Step; 10] = [
    ("format", || run_step(&mut cargo(&["fmt", "--all", "--check"]))),
    ("lints", || run_step(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("features", features::check),
    ("docs", || run_step(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))),
    ("tests", || test::run(&[])),
    ("faults", faults::short),
    ("examples", examples::run),
    ("simulation", simulate::for_a_merge),
    ("dependencies", dependencies::run),
    ("publish", publish::run),
];

/// Runs all steps and prints their results. `Failed` names the steps that failed.
pub fn run() -> Result<(), Failed> {
    let ended = STEPS.map(|(name, step)| {
        println!("\n# {name}");
        let begun = Instant::now();
        (name, step(), begun.elapsed())
    });
    println!();
    for (name, result, took) in &ended {
        println!("{}", line(name, result, *took));
    }
    let failed = ended.iter().filter(|(_, result, _)| result.is_err()).map(|(name, ..)| *name).collect::<Vec<_>>();
    if failed.is_empty() { Ok(()) } else { Err(Failed::because(format!("failed: {}", failed.join(", ")))) }
}

fn line(name: &str, result: &Result<(), Failed>, took: Duration) -> String {
    let seconds = took.as_secs_f32();
    match result {
        Ok(()) => format!("{name:<13} {seconds:>7.1} s  ok"),
        Err(failed) => format!("{name:<13} {seconds:>7.1} s  FAILED: {failed}"),
    }
}

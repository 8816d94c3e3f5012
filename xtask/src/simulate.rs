//! `cargo xtask simulate`: runs a number of schedules of the simulation, or as many as a time limit allows.

use crate::step::{Failed, cargo, run as run_step};

const HELP: &str = "cargo xtask simulate takes --seeds N, --seconds N and --first N";

/// Runs schedules until one fails, their number is reached, or the time limit ends. If one fails, returns `Failed`, and its seed and the
/// shortest failing schedule have been printed.
pub fn run(args: &[String]) -> Result<(), Failed> {
    let mut command = cargo(&["test", "--package", "fsm-core", "--test", "simulation", "--", "--exact", "--nocapture"]);
    command.arg("no_schedule_breaks_a_promise");
    for pair in args.chunks(2) {
        let variable = match pair[0].as_str() {
            "--seeds" => "FSM_SIMULATION_SEEDS",
            "--seconds" => "FSM_SIMULATION_SECONDS",
            "--first" => "FSM_SIMULATION_FIRST",
            other => return Err(Failed { what: format!("`{other}` is not an option: {HELP}"), code: 2 }),
        };
        let number = pair.get(1).filter(|number| number.parse::<u64>().is_ok());
        let number = number.ok_or_else(|| Failed { what: format!("`{}` wants a number: {HELP}", pair[0]), code: 2 })?;
        command.env(variable, number);
    }
    run_step(&mut command)
}

/// The run before each merge: a hundred thousand schedules, or as many as fit into five minutes.
pub fn for_a_merge() -> Result<(), Failed> {
    run(&["--seeds", "100000", "--seconds", "300"].map(str::to_owned))
}

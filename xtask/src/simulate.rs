//! `cargo xtask simulate`: runs a number of schedules of the simulation, or as many as a time limit allows.

use crate::step::{Failed, cargo, run as run_step};

/// The schedules to run.
#[derive(clap::Args)]
pub struct Limits {
    /// The number of schedules
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The longest time, in seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The seed of the first schedule
    #[arg(long, value_name = "N")]
    first: Option<u64>,
}

/// Runs schedules until one fails, their number is reached, or the time limit ends. If one fails, returns `Failed`, and its seed and the
/// shortest failing schedule have been printed.
pub fn run(limits: &Limits) -> Result<(), Failed> {
    // Of the whole workspace, so that its dependencies have the features with which the other tests have built them.
    let mut command = cargo(&["test", "--workspace", "--test", "simulation", "--", "--exact", "--nocapture"]);
    command.args(["no_schedule_breaks_a_promise", "no_schedule_of_two_partitions_breaks_a_promise"]);
    let variables =
        [("FSM_SIMULATION_SEEDS", limits.seeds), ("FSM_SIMULATION_SECONDS", limits.seconds), ("FSM_SIMULATION_FIRST", limits.first)];
    for (variable, number) in variables {
        command.envs(number.map(|number| (variable, number.to_string())));
    }
    run_step(&mut command)
}

/// The run before each merge: a hundred thousand schedules, or as many as fit into five minutes.
pub fn for_a_merge() -> Result<(), Failed> {
    run(&Limits { seeds: Some(100_000), seconds: Some(300), first: None })
}

//! The arguments of `fsm schedules`.

use clap::{Args as ClapArgs, Subcommand};

/// `fsm schedules`.
#[derive(Debug, ClapArgs)]
pub struct Schedules {
    /// The act; without one, the schedules are listed.
    #[command(subcommand)]
    pub act: Option<OnSchedule>,
}

/// An act on a schedule.
#[derive(Debug, Subcommand)]
pub enum OnSchedule {
    /// Send no moment until the schedule is resumed
    Pause(OneSchedule),
    /// Send moments again; those that passed while it was paused are not sent
    Resume(OneSchedule),
    /// Make a worker send an event of the schedule now, also while it is paused
    Trigger(OneSchedule),
    /// Delete a schedule that no worker declares
    Forget(OneSchedule),
}

/// The schedule of an act.
#[derive(Debug, ClapArgs)]
pub struct OneSchedule {
    /// The name of the schedule
    pub name: String,
    /// The operator's name, which the schedule stores [default: $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

//! The arguments of `fsm limits`.

use clap::{Args as ClapArgs, Subcommand};

/// `fsm limits`.
#[derive(Debug, Subcommand)]
pub enum Limits {
    /// Change the setting of a limit for all processes; what is not given stays
    Set(SetLimit),
}

/// `fsm limits set`.
#[derive(Debug, ClapArgs)]
pub struct SetLimit {
    /// The limit
    pub name: String,
    /// The maximum number of calls that run at once; 0 stops all starts
    #[arg(long, value_name = "CALLS")]
    pub concurrency: Option<u32>,
    /// Remove the limit on calls that run at once
    #[arg(long, conflicts_with = "concurrency")]
    pub no_concurrency: bool,
    /// The maximum number of starts in a second; 0 stops all starts
    #[arg(long, value_name = "STARTS", group = "rate")]
    pub per_second: Option<u32>,
    /// The maximum number of starts in a minute
    #[arg(long, value_name = "STARTS", group = "rate")]
    pub per_minute: Option<u32>,
    /// The maximum number of starts in an hour
    #[arg(long, value_name = "STARTS", group = "rate")]
    pub per_hour: Option<u32>,
    /// Remove the rate
    #[arg(long, group = "rate")]
    pub no_rate: bool,
    /// The number of starts that may happen at the same time after a pause
    #[arg(long, value_name = "STARTS")]
    pub burst: Option<u32>,
    /// The operator's name, which is stored with the setting [default: $USER]
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
}

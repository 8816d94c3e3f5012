//! The arguments of `fsm graph`.

use clap::{Args as ClapArgs, ValueEnum};

/// `fsm graph`.
#[derive(Debug, ClapArgs)]
pub struct Graph {
    /// The machine
    pub machine: String,
    /// The format
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    pub format: Format,
    /// Show the number of instances in each state, counted among the newest of each status
    #[arg(long)]
    pub counts: bool,
    /// Count all instances
    #[arg(long, requires = "counts")]
    pub all: bool,
}

/// The format of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// `stateDiagram-v2`, which many sites render
    Mermaid,
    /// Graphviz
    Dot,
    /// A vector graphic for browsers
    Svg,
}

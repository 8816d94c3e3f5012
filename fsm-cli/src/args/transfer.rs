//! The arguments of `fsm export` and `fsm import`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// `fsm export`.
#[derive(Debug, ClapArgs)]
pub struct Export {
    /// Only this machine
    pub machine: Option<String>,
    /// Write to this file instead of the standard output. It must not exist, not even as a symbolic link, and only its owner can read it
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Export even while workers use the database; their later changes are not included
    #[arg(long)]
    pub live: bool,
}

/// `fsm import`.
#[derive(Debug, ClapArgs)]
pub struct Import {
    /// The file, or `-` for the standard input
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

//! Finds PostgreSQL for the tests, or installs it with the system's package manager.

use std::time::Instant;

use crate::cluster::{self, Cluster};
use crate::install;
use crate::step::Failed;

/// The commands that install the server's programs, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "postgresql-server"]]),
    ("apk", &[&["apk", "add", "postgresql"]]),
    ("brew", &[&["brew", "install", "postgresql"]]),
];

/// Starts a temporary server. If PostgreSQL is missing, it is installed first: in CI without a question, at a terminal after the user
/// agrees.
pub fn start() -> Result<Cluster, Failed> {
    start_with(cluster::start_own)
}

/// Like `start`, with commits that are written to the disk.
pub fn start_durable() -> Result<Cluster, Failed> {
    start_with(cluster::start_durable)
}

/// Installs the server's programs if they are missing.
pub fn ensure() -> Result<(), Failed> {
    let Err(missing) = cluster::find_programs() else { return Ok(()) };
    println!("PostgreSQL is not installed; the tests need its server programs");
    install::install(&MANAGERS, missing)
}

fn start_with(how: impl FnOnce() -> Result<Cluster, cluster::ClusterError>) -> Result<Cluster, Failed> {
    ensure()?;
    let begun = Instant::now();
    eprintln!("==> start a throw-away PostgreSQL ({})", cluster::find_programs().map_err(Failed::because)?.display());
    let cluster = how().map_err(Failed::because)?;
    eprintln!("    {:.1?}", begun.elapsed());
    Ok(cluster)
}

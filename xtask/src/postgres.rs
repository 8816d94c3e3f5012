//! PostgreSQL for the tests: the installed one, else one that the system's package manager installs.

use std::time::Instant;

use crate::cluster::{self, Cluster};
use crate::install;
use crate::step::Failed;

/// What brings the server's programs, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "postgresql-server"]]),
    ("apk", &[&["apk", "add", "postgresql"]]),
    ("brew", &[&["brew", "install", "postgresql"]]),
];

/// Starts a throw-away server. Where PostgreSQL is missing it is installed first: in CI at once, at a terminal when the user agrees.
pub fn start() -> Result<Cluster, Failed> {
    start_by(cluster::start_own)
}

/// The same, with commits that reach the disk.
pub fn start_durable() -> Result<Cluster, Failed> {
    start_by(cluster::start_durable)
}

/// The server's programs are there afterwards.
pub fn ensure() -> Result<(), Failed> {
    let Err(missing) = cluster::find_programs() else { return Ok(()) };
    println!("PostgreSQL is not installed; the tests need its server programs");
    install::install(&MANAGERS, missing)
}

fn start_by(how: impl FnOnce() -> Result<Cluster, cluster::ClusterError>) -> Result<Cluster, Failed> {
    ensure()?;
    let begun = Instant::now();
    println!("==> start a throw-away PostgreSQL ({})", cluster::find_programs().map_err(Failed::because)?.display());
    let cluster = how().map_err(Failed::because)?;
    println!("    {:.1?}", begun.elapsed());
    Ok(cluster)
}

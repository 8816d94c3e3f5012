//! Finds PgBouncer for the fault tests, or installs it with the system's package manager.

use std::path::Path;

use crate::install::{self, is_on_the_path};
use crate::step::Failed;

/// The commands that install it, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "pgbouncer"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "pgbouncer"]]),
    ("apk", &[&["apk", "add", "pgbouncer"]]),
    ("brew", &[&["brew", "install", "pgbouncer"]]),
];

/// Installs PgBouncer if it is missing.
pub fn ensure() -> Result<(), Failed> {
    let is_installed =
        is_on_the_path("pgbouncer") || ["/usr/sbin", "/usr/local/sbin"].iter().any(|at| Path::new(at).join("pgbouncer").is_file());
    if is_installed {
        return Ok(());
    }
    println!("PgBouncer is not installed; the fault tests send a load through it");
    install::install(&MANAGERS, "PgBouncer is not installed")
}

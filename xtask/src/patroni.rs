//! Finds Patroni, etcd and haproxy for the fault tests, or installs them with the system's package manager.

use std::path::Path;

use crate::install::{self, is_on_the_path};
use crate::step::Failed;

const PROGRAMS: [&str; 3] = ["patroni", "etcd", "haproxy"];
/// The commands that install them. Other systems do not have packages of all three.
const MANAGERS: [(&str, &[&[&str]]); 1] = [(
    "apt-get",
    &[
        &["apt-get", "update"],
        &[
            "apt-get",
            "install",
            "--yes",
            "--no-install-recommends",
            "--no-upgrade",
            "patroni",
            "python3-etcd",
            "etcd-server",
            "etcd-client",
            "haproxy",
        ],
    ],
)];

/// Installs the missing programs.
pub fn ensure() -> Result<(), Failed> {
    let is_installed =
        |program: &&str| is_on_the_path(program) || ["/usr/sbin", "/usr/local/sbin"].iter().any(|at| Path::new(at).join(program).is_file());
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !is_installed(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = format!("{} not installed; the fault tests fail over a cluster of three servers", missing.join(", "));
    println!("{missing}");
    install::install(&MANAGERS, missing)
}

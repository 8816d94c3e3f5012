//! Finds Prometheus and its promtool for the tests of the metrics, or installs them with the system's package manager.

use crate::install::{self, is_on_the_path};
use crate::step::Failed;

/// The commands that install it, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "prometheus"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "golang-github-prometheus"]]),
    ("apk", &[&["apk", "add", "prometheus"]]),
    ("brew", &[&["brew", "install", "prometheus"]]),
];

/// Installs Prometheus if it is missing.
pub fn ensure() -> Result<(), Failed> {
    if is_on_the_path("prometheus") && is_on_the_path("promtool") {
        return Ok(());
    }
    println!("Prometheus is not installed; tests of the metrics ask it");
    install::install(&MANAGERS, "Prometheus is not installed")
}

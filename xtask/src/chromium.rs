//! Finds Chromium for the tests of the web console, or installs it with the system's package manager.

use crate::install::{self, is_on_the_path};
use crate::step::Failed;

/// The names under which systems install it. The tests look for the same ones.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// The commands that install it, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "chromium"]]),
    ("apk", &[&["apk", "add", "chromium"]]),
    ("brew", &[&["brew", "install", "--cask", "chromium"]]),
];

/// Installs Chromium if it is missing.
pub fn ensure() -> Result<(), Failed> {
    if PROGRAMS.into_iter().any(is_on_the_path) {
        return Ok(());
    }
    println!("Chromium is not installed; the web console is tested in it");
    install::install(&MANAGERS, "Chromium is not installed")
}

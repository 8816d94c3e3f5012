//! `cargo xtask screenshots`: pictures of every screen of the web console, light and dark, wide and narrow.

use std::fs;
use std::path::Path;

use crate::chromium;
use crate::step::{Failed, cargo, root, run as run_step};

/// The screens whose pictures are in the documentation. Those of empty screens and of hard cases are for a look only.
const SCREENS: [&str; 11] = [
    "overview",
    "machine",
    "instances",
    "instance",
    "instance-in-error",
    "instance-retrying",
    "errors",
    "due",
    "workers",
    "simulator",
    "audit",
];

/// Takes the pictures with the tests of the screens, into `target/screenshots`, and copies those of the documentation to
/// `docs/guide/src/images/console`. `Failed` if Chromium is missing, or if a check of a screen fails.
pub fn run() -> Result<(), Failed> {
    chromium::ensure()?;
    let (all, kept) = (root().join("target/screenshots"), root().join("docs/guide/src/images/console"));
    let mut test = cargo(&["test", "--package", "durable-fsm", "--test", "browser", "screens::", "partitioned::"]);
    run_step(test.env("FSM_SCREENSHOTS", &all).env("CI", "1"))?;
    fs::create_dir_all(&kept).map_err(Failed::because)?;
    for screen in SCREENS {
        for scheme in ["light", "dark"] {
            for width in [1280, 390] {
                copy(&all, &kept, &format!("{screen}-{scheme}-{width}.png"))?;
            }
        }
    }
    println!("all pictures: {}; those of the documentation: {}", all.display(), kept.display());
    Ok(())
}

fn copy(from: &Path, to: &Path, name: &str) -> Result<(), Failed> {
    fs::copy(from.join(name), to.join(name)).map(drop).map_err(|error| Failed::because(format!("{name}: {error}")))
}

//! `cargo xtask guide`: builds the user guide with mdBook.

use std::process::Command;

use crate::install::is_on_the_path;
use crate::step::{Failed, root, run as run_step};

const MISSING: &str = "mdBook is not installed; `cargo install mdbook` installs it. \
Without it the guide is readable as Markdown: docs/guide/src/SUMMARY.md";

/// Builds the pages into `target/guide`. `Failed` if mdBook is missing or finds a mistake.
pub fn run() -> Result<(), Failed> {
    if !is_on_the_path("mdbook") {
        return Err(Failed::because(MISSING));
    }
    run_step(Command::new("mdbook").arg("build").arg(root().join("docs/guide")))?;
    println!("{}", root().join("target/guide/index.html").display());
    Ok(())
}

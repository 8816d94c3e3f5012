//! Checks of the published crates: the minimum Rust version, the packages, and breaking changes since the last release.

use std::process::{Command, Stdio};

use crate::step::{Failed, cargo, cargo_has, root, run as run_step};

/// The crates that users receive, in the order in which they are published.
const PUBLISHED: [&str; 7] = ["fsm-core", "fsm-macros", "fsm-store", "fsm-runtime", "fsm-console", "fsm-cli", "durable-fsm"];

/// Runs all of these checks. Prints those that this machine cannot run. `Failed` is that of the first check that failed.
pub fn run() -> Result<(), Failed> {
    let (packages, minimum) = (packages(), minimum_rust());
    packages.and(minimum).and(breaking_changes())
}

/// Creates the packages of all published crates, as `cargo publish` uploads them. The steps before have compiled their code.
fn packages() -> Result<(), Failed> {
    run_step(of_published(&mut cargo(&["package", "--no-verify", "--allow-dirty", "--quiet"])))
}

/// Checks the published crates with the oldest compiler that they promise to work with.
fn minimum_rust() -> Result<(), Failed> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).map_err(Failed::because)?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).map(|version| version.trim_matches('"'));
    let version = version.ok_or_else(|| Failed::because("Cargo.toml names no rust-version"))?;
    let rustup = |words: &[&str]| {
        let mut command = Command::new("rustup");
        // The cargo that runs this program sets these for its own toolchain.
        command.args(["run", version, "cargo"]).args(words).current_dir(root()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command
    };
    let is_installed = rustup(&["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !is_installed {
        println!("    NOT CHECKED: Rust {version}, because it is not installed (`rustup toolchain install {version} --profile minimal`)");
        return Ok(());
    }
    run_step(of_published(&mut rustup(&["check", "--quiet", "--all-features"])))
}

/// Compares the public API with the last release. Before the first release there is nothing to compare with.
fn breaking_changes() -> Result<(), Failed> {
    let tags = Command::new("git").args(["tag", "--list", "v*"]).current_dir(root()).output().map_err(Failed::because)?;
    if tags.stdout.is_empty() {
        println!("    NOT CHECKED: breaking changes, because there is no release");
    } else if !cargo_has("semver-checks") {
        println!(
            "    NOT CHECKED: breaking changes, because cargo-semver-checks is not installed (`cargo install cargo-semver-checks --locked`)"
        );
    } else {
        // `fsm-cli` and the macros have no API that programs compile against; the others are used through `durable-fsm`.
        return run_step(&mut cargo(&["semver-checks", "--package", "durable-fsm", "--all-features"]));
    }
    Ok(())
}

fn of_published(command: &mut Command) -> &mut Command {
    PUBLISHED.iter().fold(command, |command, name| command.args(["--package", name]))
}

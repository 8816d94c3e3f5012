//! Installs a peer with `cargo` or `npm`, in the version of the lock file.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::peers::{Peer, Program};

/// The command that runs an installed peer.
pub struct Installed {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub version: String,
}

/// The folder of all peers, which is the parent of this crate.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the driver is one of several folders")
}

/// The folder for build results.
pub fn target() -> PathBuf {
    folder().join("../../target/peers")
}

/// Builds and installs a whole workspace at once, so that each dependency has one set of features and is built once.
#[derive(Default)]
pub struct Installer {
    /// For each workspace, true if all of it could be built.
    workspaces: HashMap<&'static str, bool>,
}

impl Installer {
    /// Installs the peer. The error says in one line why this is not possible.
    pub fn install(&mut self, peer: &Peer) -> Result<Installed, String> {
        match peer.program {
            Program::Cargo { workspace, package, of } => self.by_cargo(workspace, package, of),
            Program::Npm { script, of } => by_npm(script, of),
        }
    }

    fn by_cargo(&mut self, workspace: &'static str, package: &str, of: &str) -> Result<Installed, String> {
        let folder = folder().join(workspace);
        let is_whole = *self.workspaces.entry(workspace).or_insert_with(|| cargo(&folder, &["--workspace", "--keep-going"]).is_ok());
        if !is_whole {
            // Some packages could be built, but it is not known whether this one could.
            cargo(&folder, &["--package", package])?;
        }
        let version = locked_crate(&folder.join("Cargo.lock"), of)?;
        Ok(Installed { program: target().join("release").join(package), arguments: Vec::new(), version })
    }
}

fn cargo(workspace: &Path, what: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--release", "--locked"];
    run(Command::new(cargo).args(words).args(what).current_dir(workspace).env("CARGO_TARGET_DIR", target()))
}

fn by_npm(script: &str, of: &str) -> Result<Installed, String> {
    let node = folder().join("node");
    if !is_installed(&node) {
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&node))?;
    }
    let program = node.join("node_modules/.bin/node");
    // npm installs Node by a script of the package, and a user may have disabled such scripts.
    run(Command::new(&program).arg("--version"))?;
    let version = locked_package(&node.join("package-lock.json"), of)?;
    let script = node.join(script).display().to_string();
    Ok(Installed { program, arguments: vec!["--no-deprecation".to_owned(), script], version })
}

/// Returns true if the file that npm writes at the end is newer than the project's lock file.
fn is_installed(node: &Path) -> bool {
    let when = |file: &str| fs::metadata(node.join(file)).and_then(|about| about.modified()).ok();
    let (locked_at, installed_at) = (when("package-lock.json"), when("node_modules/.package-lock.json"));
    installed_at.is_some() && installed_at >= locked_at
}

fn run(command: &mut Command) -> Result<(), String> {
    let words: Vec<_> = command.get_args().map(|word| word.display().to_string()).collect();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let text = format!("{program} {}", words.join(" "));
    eprintln!("==> {text}");
    // `cargo run` sets variables that describe the driver. Build scripts that depend on them would run again, and all dependent crates would be
    // rebuilt.
    let describes_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(describes_us)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    // Standard output is reserved for the table.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(|error| format!("could not run `{text}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{text}` failed: {status}")) }
}

fn locked_crate(lock: &Path, name: &str) -> Result<String, String> {
    let text = fs::read_to_string(lock).map_err(|error| format!("could not read `{}`: {error}", lock.display()))?;
    let (_, rest) =
        text.split_once(&format!("name = \"{name}\"\nversion = \"")).ok_or(format!("`{name}` is not in `{}`", lock.display()))?;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

fn locked_package(lock: &Path, name: &str) -> Result<String, String> {
    let text = fs::read_to_string(lock).map_err(|error| format!("could not read `{}`: {error}", lock.display()))?;
    let lock: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let version = lock["packages"][format!("node_modules/{name}")]["version"].as_str();
    version.map(str::to_owned).ok_or(format!("`{name}` is not in the lock file"))
}

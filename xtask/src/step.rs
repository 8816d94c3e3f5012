//! Runs a command, and prints the command and its duration.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::cluster;

/// The failure of a step, with the exit code.
#[derive(Debug)]
pub struct Failed {
    pub what: String,
    pub code: u8,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Failed {
    pub fn because(what: impl fmt::Display) -> Failed {
        Failed { what: what.to_string(), code: 1 }
    }
}

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// The cargo that runs this program, in the root of the workspace.
pub fn cargo(args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // `cargo run` sets variables that describe this package. Build scripts that depend on them would run again, and all dependent crates
    // would be rebuilt.
    let describes_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(describes_us)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}

/// Returns true if cargo has this subcommand.
pub fn cargo_has(subcommand: &str) -> bool {
    cargo(&[subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs a command to its end. Its text and its duration are printed on standard error, because the other output belongs to the command.
/// `Failed` has the command's exit code.
pub fn run(command: &mut Command) -> Result<(), Failed> {
    let text = text_of(command);
    eprintln!("==> {text}");
    let begun = Instant::now();
    let status = command.status().map_err(|error| Failed { what: format!("could not run `{text}`: {error}"), code: 127 })?;
    let took = begun.elapsed();
    if status.success() {
        eprintln!("    {took:.1?}");
        Ok(())
    } else {
        eprintln!("    failed after {took:.1?}");
        Err(Failed { what: format!("`{text}` failed: {status}"), code: code_of(status) })
    }
}

/// The command as it would be typed in a shell.
fn text_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    // A server's URL may contain a password, so it is left out.
    let shown = |(name, value): (&OsStr, Option<&OsStr>)| Some(format!("{}={:?}", name.display(), value?));
    let variables = command.get_envs().filter(|(name, _)| *name != cluster::VARIABLE).filter_map(shown);
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.display().to_string());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// The exit code as a shell reports it, and 1 for a command that was ended by a signal.
fn code_of(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

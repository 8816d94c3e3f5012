//! Installs programs with the system's package manager: in CI without a question, at a terminal after the user agrees.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::Command;

use crate::site;
use crate::step::{Failed, run};

/// The commands that install a program, by package manager.
pub type Managers = [(&'static str, &'static [&'static [&'static str]])];

/// Installs a program with the first manager that this system has. Otherwise `Failed` has the text `missing` and the commands that would
/// help.
pub fn install(managers: &Managers, missing: impl fmt::Display) -> Result<(), Failed> {
    let Some((_, commands)) = managers.iter().find(|(manager, _)| is_on_the_path(manager)) else {
        return Err(Failed::because(missing));
    };
    // Homebrew refuses to run as root; the others need root.
    let needs_sudo = commands[0][0] != "brew" && site::id(&["-u"]) != Some(0);
    let prefix: &[&str] = if needs_sudo { &["sudo"] } else { &[] };
    let commands = commands.iter().map(|words| [prefix, words].concat()).collect::<Vec<_>>();
    let text = commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ");
    if !may_install(&text) {
        return Err(Failed::because(format!("{missing}; here: {text}")));
    }
    commands.iter().try_for_each(|words| run(Command::new(words[0]).args(&words[1..])))
}

fn may_install(text: &str) -> bool {
    if std::env::var_os("CI").is_some() {
        return true;
    }
    if !io::stdin().is_terminal() {
        return false;
    }
    print!("install it with `{text}`? [y/N] ");
    let mut answer = String::new();
    // An answer that cannot be read counts as no.
    let _ = io::stdout().flush().and_then(|()| io::stdin().read_line(&mut answer));
    matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Returns true if the program is found on the `PATH`.
pub fn is_on_the_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(Path::new(program)).is_file()))
}

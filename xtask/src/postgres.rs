//! PostgreSQL for the tests: the installed one, else one that the system's package manager installs.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::cluster::{self, Cluster};
use crate::site;
use crate::step::{Failed, run};

/// What brings the server's programs, by package manager.
const MANAGERS: [(&str, &[&[&str]]); 4] = [
    ("apt-get", &[&["apt-get", "update"], &["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]]),
    ("dnf", &[&["dnf", "install", "--assumeyes", "postgresql-server"]]),
    ("apk", &[&["apk", "add", "postgresql"]]),
    ("brew", &[&["brew", "install", "postgresql"]]),
];

/// Starts a throw-away server. Where PostgreSQL is missing it is installed first: in CI at once, at a terminal when the user agrees.
pub fn start() -> Result<Cluster, Failed> {
    start_by(cluster::start_own)
}

/// The same, with commits that reach the disk.
pub fn start_durable() -> Result<Cluster, Failed> {
    start_by(cluster::start_durable)
}

fn start_by(how: impl FnOnce() -> Result<Cluster, cluster::ClusterError>) -> Result<Cluster, Failed> {
    if let Err(missing) = cluster::find_programs() {
        install(&missing)?;
    }
    let begun = Instant::now();
    eprintln!("==> start a throw-away PostgreSQL ({})", cluster::find_programs().map_err(Failed::because)?.display());
    let cluster = how().map_err(Failed::because)?;
    eprintln!("    {:.1?}", begun.elapsed());
    Ok(cluster)
}

fn install(missing: &cluster::ClusterError) -> Result<(), Failed> {
    let Some((_, commands)) = MANAGERS.iter().find(|(manager, _)| is_on_the_path(manager)) else {
        return Err(Failed::because(missing));
    };
    // Homebrew refuses to run as root, the others need it.
    let needs_sudo = commands[0][0] != "brew" && site::id(&["-u"]) != Some(0);
    let prefix: &[&str] = if needs_sudo { &["sudo"] } else { &[] };
    let commands = commands.iter().map(|words| [prefix, words].concat()).collect::<Vec<_>>();
    let text = commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ");
    println!("PostgreSQL is not installed; the tests need its server programs");
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
    // An answer that cannot be read is a no.
    let _ = io::stdout().flush().and_then(|()| io::stdin().read_line(&mut answer));
    matches!(answer.trim(), "y" | "Y" | "yes")
}

fn is_on_the_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(Path::new(program)).is_file()))
}

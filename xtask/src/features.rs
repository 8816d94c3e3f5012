//! `cargo xtask features`: each database alone, without the driver of the other one.

use std::process::Stdio;

use crate::step::{Failed, cargo, cargo_has, run as run_step};
use crate::{cluster, test};

/// The features of the databases.
const DATABASES: [&str; 2] = ["sqlite", "postgres"];
/// The other features of `durable-fsm`, which go with each database.
const OTHERS: &str = "aead,cli,console,metrics,otel,testing";
/// The features that `fsm-runtime` has of those.
const OF_RUNTIME: &str = "aead,metrics,otel,testing";

/// Checks that the library compiles with each database alone, and runs the tests of each. `Failed` if one of them fails.
pub fn run() -> Result<(), Failed> {
    let checked = check().and(with_none());
    let (server, url) = test::server()?;
    let tested = DATABASES.iter().try_for_each(|database| tests(database, &url));
    drop(server);
    checked.and(tested)
}

/// Lints the library with each database alone. Compiles no tests.
pub fn check() -> Result<(), Failed> {
    DATABASES
        .iter()
        .try_for_each(|database| run_step(cargo(&alone("clippy", "durable-fsm", database, OTHERS)).args(["--", "-D", "warnings"])))
}

/// Checks that a build without a database fails, and says which features there are.
fn with_none() -> Result<(), Failed> {
    let built = cargo(&["check", "--package", "fsm-runtime", "--no-default-features"]).stdout(Stdio::null()).output();
    let says = String::from_utf8_lossy(&built.map_err(Failed::because)?.stderr).into_owned();
    let is_told = says.contains("durable-fsm needs a database: turn on its feature `sqlite`");
    if is_told { Ok(()) } else { Err(Failed::because(format!("a build without a database does not say that it needs one: {says}"))) }
}

/// Runs the promises and the unit tests of the runtime on one database.
fn tests(database: &str, url: &str) -> Result<(), Failed> {
    let tests = if cargo_has("nextest") { "nextest run --no-fail-fast" } else { "test --no-fail-fast" };
    for (package, features, targets) in [("fsm-runtime", OF_RUNTIME, "--lib"), ("durable-fsm", OTHERS, "--test=promises")] {
        run_step(cargo(&alone(tests, package, database, features)).arg(targets).env(cluster::VARIABLE, url))?;
    }
    Ok(())
}

/// The words of a command of cargo about a package with one database.
fn alone(command: &str, package: &str, database: &str, others: &str) -> Vec<String> {
    let words = format!("{command} --package {package} --no-default-features --features {database},{others}");
    words.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packages of a driver.
    fn driver(database: &str) -> &'static [&'static str] {
        match database {
            "sqlite" => &["sqlx-sqlite", "rusqlite", "libsqlite3-sys"],
            _ => &["sqlx-postgres"],
        }
    }

    #[test]
    fn a_program_with_one_database_compiles_no_driver_of_the_other() {
        for database in DATABASES {
            let words = alone("tree --locked --edges normal,build --prefix none --format {p}", "durable-fsm", database, OTHERS);
            let answer = cargo(&words).stderr(Stdio::inherit()).output().expect("cargo runs");
            let tree = String::from_utf8_lossy(&answer.stdout);
            let has = |package: &&str| tree.lines().any(|line| line.split(' ').next() == Some(package));
            for other in DATABASES {
                let found: Vec<_> = driver(other).iter().filter(|package| has(package)).collect();
                assert_eq!(found.is_empty(), other != database, "with `{database}` alone: {found:?} of `{other}`");
            }
        }
    }
}

//! `cargo xtask features`: each database alone, without the driver of the other one.

use std::process::Stdio;

use crate::step::{Failed, cargo, cargo_has, run as run_step};
use crate::{cluster, test};

/// The features of the databases.
const DATABASES: [&str; 2] = ["sqlite", "postgres"];
/// The other features of `durable-fsm`, which go with each database.
const OTHER_FEATURES: &str = "aead,cli,console,metrics,otel,testing";
/// The ones of these that `fsm-runtime` has.
const RUNTIME_FEATURES: &str = "aead,metrics,otel,testing";
/// The ones of these that `fsm-store` has.
const STORE_FEATURES: &str = "metrics,testing";

/// Checks that the library compiles with each database alone, and runs the tests of each. `Failed` if one of them fails.
pub fn run() -> Result<(), Failed> {
    let checked = check().and(check_without_database());
    let (server, url) = test::server()?;
    let tested = DATABASES.iter().try_for_each(|database| tests(database, &url));
    drop(server);
    checked.and(tested)
}

/// Lints the library with each database alone. Compiles no tests.
pub fn check() -> Result<(), Failed> {
    DATABASES.iter().try_for_each(|database| {
        run_step(cargo(&arguments_with_one_database("clippy", "durable-fsm", database, OTHER_FEATURES)).args(["--", "-D", "warnings"]))
    })
}

/// Checks that a build without a database fails, and that its error names the features.
fn check_without_database() -> Result<(), Failed> {
    let built = cargo(&["check", "--package", "fsm-runtime", "--no-default-features"]).stdout(Stdio::null()).output();
    let errors = String::from_utf8_lossy(&built.map_err(Failed::because)?.stderr).into_owned();
    let names_the_features = errors.contains("durable-fsm needs a database: turn on its feature `sqlite`");
    if names_the_features {
        Ok(())
    } else {
        Err(Failed::because(format!("a build without a database does not say that it needs one: {errors}")))
    }
}

/// Runs the promises and the unit tests of the store and of the runtime on one database.
fn tests(database: &str, url: &str) -> Result<(), Failed> {
    let tests = if cargo_has("nextest") { "nextest run --no-fail-fast" } else { "test --no-fail-fast" };
    let packages = [
        ("fsm-store", STORE_FEATURES, "--lib"),
        ("fsm-runtime", RUNTIME_FEATURES, "--lib"),
        ("durable-fsm", OTHER_FEATURES, "--test=promises"),
    ];
    for (package, features, targets) in packages {
        run_step(cargo(&arguments_with_one_database(tests, package, database, features)).arg(targets).env(cluster::VARIABLE, url))?;
    }
    Ok(())
}

/// The arguments of a cargo command for a package with one database.
fn arguments_with_one_database(command: &str, package: &str, database: &str, others: &str) -> Vec<String> {
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
            let words = arguments_with_one_database(
                "tree --locked --edges normal,build --prefix none --format {p}",
                "durable-fsm",
                database,
                OTHER_FEATURES,
            );
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

//! `cargo xtask faults`: runs fault scenarios with real processes, and compares the database with the ledger after each.

mod arguments;
mod basket;
mod bell;
mod check;
#[cfg(test)]
mod check_tests;
mod child;
mod crane;
mod databases;
mod invariant_checker;
mod ledger;
mod load;
mod machine;
mod patroni;
mod process;
mod proxy;
mod purchase;
#[allow(dead_code, reason = "the simulation uses all of it")]
#[path = "../../fsm-core/tests/simulation/random.rs"]
mod random;
mod report;
mod rows;
mod scenario;
mod servers;
mod size;
mod small_disk;
mod sql;
mod test_run;
mod test_server;

use std::process::ExitCode;

use arguments::Arguments;
use scenario::ALL;
use test_server::TestServer;

/// A scenario cannot run on this machine. That is an error only if the scenario was named.
#[derive(Debug)]
pub struct Skipped(pub String);

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// Any error of the harness itself.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("child") => run_role(&words, child::run),
        Some("proxy") => run_role(&words, proxy::run),
        _ => match Arguments::parse(std::env::args()) {
            Ok(arguments) => run(&arguments),
            Err(code) => return code,
        },
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("faults: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a child process of the harness.
fn run_role<S: serde::de::DeserializeOwned>(words: &[String], role: impl FnOnce(&S) -> Result<(), Failure>) -> Result<bool, Failure> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("FSM_FAULTS_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let spec = words.get(1).ok_or("the argument with the specification of the child process is missing")?;
    role(&serde_json::from_str(spec)?).map(|()| true)
}

/// Runs the scenarios one after the other. Returns true if nothing was found.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut test_server = TestServer::default();
    let mut is_clean = true;
    println!("seed {}", arguments.size.seed);
    for scenario in ALL.iter().filter(|scenario| arguments.wants(scenario.name)) {
        for kind in scenario.on.iter().filter(|kind| arguments.database.is_none_or(|wanted| wanted == **kind)) {
            println!("==> {} on {}: {}", scenario.name, kind.word(), scenario.description);
            match runtime.block_on((scenario.run)(&mut test_server, *kind, arguments.size)) {
                Ok(mut report) => {
                    is_clean &= report.is_clean();
                    println!("    {report}");
                }
                Err(failure) if failure.is::<Skipped>() && !arguments.names(scenario.name) => println!("    SKIPPED: {failure}"),
                Err(failure) => {
                    println!("    could not be carried out: {failure}; what there is is kept among the temporary files");
                    is_clean = false;
                }
            }
        }
    }
    println!("{}", if is_clean { "nothing was lost, and nothing happened twice" } else { "FAILED" });
    Ok(is_clean)
}

//! `cargo xtask test`: runs all tests, with a PostgreSQL server for their duration.

use std::thread;
use std::time::Instant;

use crate::step::{Failed, cargo, cargo_has, run as run_step};
use crate::{chromium, cluster, postgres, prometheus};

/// Runs the tests that `args` select, or all tests and the code in the documentation. `Failed` has the exit code of the first failure.
pub fn run(args: &[String]) -> Result<(), Failed> {
    let begun = Instant::now();
    let (own_server, url) = server()?;
    let (own_second, second) = server_of(cluster::SECOND)?;
    if let Err(missing) = prometheus::ensure() {
        println!("    NOT TESTED: the metrics with a real Prometheus, for {missing}");
    }
    if let Err(missing) = chromium::ensure() {
        println!("    NOT TESTED: the web console in a browser, for {missing}");
    }
    // Many tests wait for a database or for time, and leave a processor to others.
    let threads = thread::available_parallelism().map_or(2, |processors| processors.get() + 1).to_string();
    let with_server = |words: &[&str]| {
        let variables = [(cluster::VARIABLE, &url), (cluster::SECOND, &second), ("NEXTEST_TEST_THREADS", &threads)];
        run_step(cargo(words).args(args).envs(variables))
    };
    let ended = if cargo_has("nextest") {
        let tests = with_server(&["nextest", "run", "--workspace", "--no-fail-fast"]);
        // The documentation tests do not accept the arguments of nextest.
        let docs = if args.is_empty() { with_server(&["test", "--workspace", "--doc"]) } else { Ok(()) };
        tests.and(docs)
    } else {
        println!("    cargo-nextest is not installed: `cargo test` runs the tests, one file after the other");
        with_server(&["test", "--workspace", "--no-fail-fast"])
    };
    drop((own_server, own_second));
    let word = if ended.is_ok() { "passed" } else { "failed" };
    println!("tests: {word} in {:.1?}", begun.elapsed());
    ended
}

/// The URL of a PostgreSQL server: the one of `FSM_TEST_POSTGRES`, or one of our own, which lives as long as the first value.
pub fn server() -> Result<(Option<cluster::Cluster>, String), Failed> {
    server_of(cluster::VARIABLE)
}

fn server_of(variable: &str) -> Result<(Option<cluster::Cluster>, String), Failed> {
    if let Some(given_url) = cluster::given(variable) {
        return Ok((None, given_url));
    }
    let own_server = postgres::start()?;
    let url = own_server.url();
    Ok((Some(own_server), url))
}

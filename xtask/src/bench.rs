//! `cargo xtask bench`: measures the engine on SQLite files and on a PostgreSQL server that writes commits to the disk.

use crate::step::{Failed, cargo, run as run_step};
use crate::{cluster, postgres};

/// Runs the benchmarks that `args` name, or all of them. `Failed` has the exit code of the benchmark.
pub fn run(args: &[String]) -> Result<(), Failed> {
    on_a_server(&["bench", "--quiet", "--bench", "engine", "--"], args)
}

/// Measures the commands of `fsm` on a large database. `Failed` if one of them exceeds its limit.
pub fn scale(args: &[String]) -> Result<(), Failed> {
    on_a_server(&["bench", "--quiet", "--package", "fsm-cli", "--bench", "scale", "--"], args)
}

fn on_a_server(words: &[&str], args: &[String]) -> Result<(), Failed> {
    let given_url = cluster::given(cluster::VARIABLE);
    let names_sqlite = args.iter().any(|word| word.starts_with("sqlite"));
    let needs_postgres = !names_sqlite || args.iter().any(|word| word == "postgres");
    let own_server = if given_url.is_some() || !needs_postgres { None } else { Some(postgres::start_durable()?) };
    let mut command = cargo(words);
    if let Some(url) = given_url.or_else(|| own_server.as_ref().map(cluster::Cluster::url)) {
        command.env(cluster::VARIABLE, url);
    }
    run_step(command.args(args))
}

//! The commands of the project's developers. `cargo xtask help` lists them.

mod bench;
mod chromium;
mod ci;
#[allow(dead_code, reason = "a cluster is shared and restarted by tests only")]
#[path = "../../fsm-store/src/testing/cluster.rs"]
mod cluster;
mod dependencies;
mod examples;
mod faults;
mod features;
mod guide;
mod install;
mod observed;
mod patroni;
mod peers;
mod pgbouncer;
mod postgres;
mod prometheus;
mod publish;
mod screenshots;
mod simulate;
#[path = "../../fsm-store/src/testing/site.rs"]
mod site;
mod step;
mod test;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// The commands of the project.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 120)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Runs all tests on SQLite and PostgreSQL, then the code in the documentation
    ///
    /// It finds or installs PostgreSQL and starts a temporary server, or uses the one that FSM_TEST_POSTGRES names.
    Test {
        /// Arguments for `cargo nextest run` (or `cargo test`); with any, the documentation is left out
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs real faults on real processes
    ///
    /// An unknown name lists the scenarios, among them `conditions` and `failover` (on Debian's packages of Patroni, etcd and haproxy, which
    /// it installs).
    Faults {
        /// Names of scenarios, sqlite, postgres, --short, --kills N, --transitions N, --seconds N, --seed N
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Mixes kills, stops, outages and the conditions at random, on SQLite and then on PostgreSQL
    ///
    /// It fails if anything is lost or hangs, or if memory grows.
    Soak {
        /// --minutes N (default 60, for each database), --seed N, sqlite, postgres
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs all checks that must pass before a merge: format, lints, features, docs, tests, faults (short), examples, simulation,
    /// dependencies, packages and the minimum Rust version
    Ci,
    /// Checks and tests the library with each database alone: the features `sqlite` and `postgres`
    ///
    /// It lints each, runs the promises and the unit tests of the runtime on it, and checks the error of a build with none.
    Features,
    /// Builds the pages of the user guide in target/guide; needs mdBook (`cargo install mdbook`)
    Guide,
    /// Takes pictures of every screen of the web console, light and dark, wide and narrow
    ///
    /// All of them are in target/screenshots, and those of the documentation in docs/guide/src/images/console. It finds or installs Chromium.
    Screenshots,
    /// Measures the speed of the engine, in release mode
    Bench {
        /// Databases, measurements and options; `cargo xtask bench -- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Compares the rate of a process with metrics and traces to the rate without them, in release mode
    ///
    /// It builds the program with and without the features, and measures all variants in turns.
    Observed(observed::Options),
    /// Measures how fast the screens of the `fsm` command and the pages of the web console are on a database of 1,000,000 instances and 5,000,000 attempts
    ///
    /// It creates the database, and fails if a screen or a page takes more than 200 ms.
    Scale {
        /// postgres, sqlite, --instances N
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs the schedules of the simulation, the same ones each time
    ///
    /// A failure prints its seed and the shortest schedule that fails. FSM_FRESH_SEEDS=1 in the environment gives this and every property
    /// test a new seed.
    Simulate(simulate::Limits),
    /// Measures this engine beside other queues and engines, each installed by cargo or npm; see benches/peers/README.md
    Peers {
        /// Names of peers, --seconds N, --callers N,N, --json, --build
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let ended = match CommandLine::parse().command {
        Some(Command::Test { args }) => test::run(&args),
        Some(Command::Faults { args }) => faults::run(&args),
        Some(Command::Soak { args }) => faults::soak(&args),
        Some(Command::Ci) => ci::run(),
        Some(Command::Features) => features::run(),
        Some(Command::Guide) => guide::run(),
        Some(Command::Screenshots) => screenshots::run(),
        Some(Command::Bench { args }) => bench::run(&args),
        Some(Command::Observed(options)) => observed::run(&options),
        Some(Command::Scale { args }) => bench::scale(&args),
        Some(Command::Simulate(limits)) => simulate::run(&limits),
        Some(Command::Peers { args }) => peers::run(&args),
        None => CommandLine::command().print_help().map_err(step::Failed::because),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("xtask: {failed}");
            ExitCode::from(failed.code)
        }
    }
}

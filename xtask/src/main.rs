//! The commands of the project's developers. `cargo xtask help` lists them.

mod bench;
mod ci;
#[allow(dead_code, reason = "a cluster is shared and restarted by tests only")]
#[path = "../../fsm-runtime/src/testing/cluster.rs"]
mod cluster;
mod dependencies;
mod examples;
mod faults;
mod guide;
mod install;
mod patroni;
mod peers;
mod pgbouncer;
mod postgres;
mod prometheus;
mod simulate;
#[path = "../../fsm-runtime/src/testing/site.rs"]
mod site;
mod step;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [ARGS]   all tests on SQLite and PostgreSQL, then the code in the docs. It finds or installs PostgreSQL and
                          starts a throw-away server, or uses the one that FSM_TEST_POSTGRES names.
                          ARGS go to `cargo nextest run` (or `cargo test`) and leave the docs out.
cargo xtask faults [ARGS] real faults on real processes; ARGS: names of scenarios, sqlite, postgres, --short, --kills N,
                          --transitions N, --seconds N, --seed N. An unknown name lists the scenarios, among them
                          conditions and failover (on Debian's packages of Patroni, etcd and haproxy, which it installs).
cargo xtask soak [ARGS]   mixes kills, stops, outages and the conditions at random, on SQLite and then on PostgreSQL; ARGS: --minutes N
                          (default 60, for each database), --seed N, sqlite, postgres. Fails if anything is lost or hangs, or memory grows.
cargo xtask ci            all that must hold before a merge: format, lints, docs, tests, faults (short), examples, dependencies
cargo xtask guide         the pages of the user guide, in target/guide; needs mdBook (`cargo install mdbook`)
cargo xtask bench [ARGS]  how fast the engine is, in release mode. ARGS: postgres, sqlite, sqlite-full, sqlite-normal; limit, transitions,
                          enqueue, idle, chain, retries, memory, across, processes; only where named: lasting, snapshot.
                          --seconds N, --callers N,N, --batches N,N, --instances N, --scattered (neighbours have no turn together),
                          --waiting N, --transitions N, --charts FOLDER, --json.
cargo xtask scale [ARGS]  how fast the screens of the `fsm` command are on a database of 1,000,000 instances and 5,000,000 attempts, which
                          it makes: fails if one takes more than 200 ms. ARGS: postgres, sqlite, --instances N.
cargo xtask simulate      the usual schedules of the simulation, the same each time; --seeds N so many, --seconds N no longer
                          than that, --first N from that seed. A failure prints its seed and the shortest schedule that fails.
                          FSM_FRESH_SEEDS=1 in the environment gives this and every property test a new seed.
cargo xtask peers [ARGS]  this engine beside other queues and engines, each brought by cargo or npm; see benches/peers/README.md.
                          ARGS: names of peers; --seconds N, --callers N,N, --json, --build.
cargo xtask help          this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ended = match args.first().map(String::as_str) {
        Some("test") => test::run(&args[1..]),
        Some("guide") => guide::run(),
        Some("bench") => bench::run(&args[1..]),
        Some("faults") => faults::run(&args[1..]),
        Some("soak") => faults::soak(&args[1..]),
        Some("scale") => bench::scale(&args[1..]),
        Some("peers") => peers::run(&args[1..]),
        Some("ci") => ci::run(),
        Some("simulate") => simulate::run(&args[1..]),
        None | Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => Err(step::Failed { what: format!("`{other}` is not a command\n\n{HELP}"), code: 2 }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("xtask: {failed}");
            ExitCode::from(failed.code)
        }
    }
}

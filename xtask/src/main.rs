//! The few commands of the project; `cargo xtask help` lists them.

mod bench;
mod ci;
#[allow(dead_code, reason = "a cluster is shared and restarted by tests only")]
#[path = "../../fsm-runtime/src/testing/cluster.rs"]
mod cluster;
mod examples;
mod peers;
mod postgres;
#[path = "../../fsm-runtime/src/testing/site.rs"]
mod site;
mod step;
mod test;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [ARGS]   all tests on SQLite and PostgreSQL, then the code in the docs. It finds or installs PostgreSQL and
                          starts a throw-away server, or uses the one that FSM_TEST_POSTGRES names.
                          ARGS go to `cargo nextest run` (or `cargo test`) and leave the docs out.
cargo xtask ci            all that must hold before a merge: format, lints, docs, tests, examples, dependencies
cargo xtask bench [ARGS]  how fast the engine is, in release mode. ARGS: postgres, sqlite, sqlite-full, sqlite-normal; limit, transitions,
                          enqueue, idle, chain, retries, memory; --seconds N, --callers N,N, --batches N,N, --instances N, --json.
cargo xtask peers [ARGS]  this engine beside other queues and engines, each brought by cargo or npm; see benches/peers/README.md.
                          ARGS: names of peers; --seconds N, --callers N,N, --json, --build.
cargo xtask help          this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ended = match args.first().map(String::as_str) {
        Some("test") => test::run(&args[1..]),
        Some("bench") => bench::run(&args[1..]),
        Some("peers") => peers::run(&args[1..]),
        Some("ci") => ci::run(),
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

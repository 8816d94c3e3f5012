//! `cargo xtask peers`: measures this engine and other queues and engines on one PostgreSQL server that writes commits to the disk.

use std::process::Command;

use crate::step::{Failed, cargo, root, run as run_step};
use crate::{cluster, postgres};

/// Installs, measures and compares the peers that `args` name, or all of them. `Failed` has the exit code of the driver in `benches/peers`.
pub fn run(args: &[String]) -> Result<(), Failed> {
    build()?;
    let given_url = cluster::given(cluster::VARIABLE);
    // A build alone needs no server.
    let is_build_only = args.iter().any(|word| word == "--build");
    let own_server = if given_url.is_some() || is_build_only { None } else { Some(postgres::start_durable()?) };
    let mut command = Command::new(root().join("target/peers/release/peers-driver"));
    command.env("CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if let Some(url) = given_url.or_else(|| own_server.as_ref().map(cluster::Cluster::url)) {
        command.env(cluster::VARIABLE, url);
    }
    run_step(command.args(args))
}

/// Builds the driver's whole workspace, because the peers are needed next, and because the driver alone would have other features of the
/// shared dependencies. If that fails, the driver is built alone and then reports which peers cannot be built.
fn build() -> Result<(), Failed> {
    let built = |what: &[&str]| {
        let mut command = cargo(&["build", "--release", "--locked"]);
        command.args(what).current_dir(root().join("benches/peers")).env("CARGO_TARGET_DIR", root().join("target/peers"));
        run_step(&mut command)
    };
    built(&["--workspace", "--keep-going"]).or_else(|_| built(&["--package", "peers-driver"]))
}

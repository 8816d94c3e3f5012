//! Runs the peers one after another on one server, each figure on a fresh database, and prints the figures side by side.
//! `cargo xtask peers` starts the server and runs this.

mod arguments;
mod databases;
mod install;
mod peers;
mod run;
mod table;

use std::error::Error;
use std::process::ExitCode;

use arguments::Arguments;
use databases::Databases;
use install::{Installed, Installer};
use peers::{Database, Peer};
use run::{FIGURES, Measured};

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut skipped, mut installer) = (Vec::new(), Installer::default());
    let chosen: Vec<(&Peer, Installed)> = arguments
        .peers
        .iter()
        .filter_map(|peer| match installer.install(peer) {
            Ok(installed) => Some((*peer, installed)),
            Err(why) => {
                eprintln!("    {} is skipped: {why}", peer.name);
                skipped.push((peer.name, why));
                None
            }
        })
        .collect();
    if arguments.is_build_only {
        return if skipped.is_empty() { Ok(()) } else { Err("not all peers could be built".into()) };
    }
    let needs_server = chosen.iter().any(|(peer, _)| peer.database == Database::Postgres);
    let databases = runtime.block_on(Databases::find(needs_server))?;
    let measured = chosen.iter().map(|(peer, installed)| runtime.block_on(one(peer, installed, &databases, &arguments)));
    let measured = measured.collect::<Result<Vec<_>>>()?;
    if arguments.is_json {
        println!("{}", serde_json::to_string_pretty(&table::json(&arguments, &databases, &measured, &skipped))?);
    } else {
        println!("{}", table::text(&arguments, &databases, &measured, &skipped));
    }
    Ok(())
}

async fn one(peer: &'static Peer, installed: &Installed, databases: &Databases, arguments: &Arguments) -> Result<Measured> {
    let mut measured = Measured::new(peer, &installed.version);
    for figure in FIGURES {
        eprintln!("==> {}: {figure}", peer.name);
        let peer_database = databases.make(peer.database).await?;
        run::figure(&mut measured, figure, installed, &peer_database, arguments)?;
        peer_database.remove().await?;
    }
    Ok(measured)
}

//! Runs the command that the arguments name.

mod act;
mod console;
mod doctor;
mod due;
mod errors;
mod export;
mod graph;
mod import;
mod limits;
mod liveness;
mod ls;
mod machines;
mod migrate;
#[cfg(feature = "postgres")]
mod partition_move;
mod partitions;
mod rejected;
mod schedules;
mod send;
mod session;
mod show;
mod simulate;
mod stats;
mod wait;
mod workers;

use clap::CommandFactory;
use fsm_core::decide::operate::Act;
use fsm_runtime::admin::Opening;
use fsm_runtime::redact::RedactableKind;

use crate::args::{Args, Command};
use crate::problem::Problem;
use crate::redact;
use crate::stage::Stage;
use session::Session;

/// The way to open the database with this URL or path.
pub fn opening(database: Option<&str>) -> Opening {
    Opening::to_read(url(database.filter(|given| !given.is_empty()).unwrap_or("fsm.db")))
}

/// Runs a command.
pub async fn run(args: Args, mut opening: Opening, stage: &mut Stage<'_>) -> Result<(), Problem> {
    // Tests set the time.
    opening = stage.now.into_iter().fold(opening, |opening, now| opening.at(now));
    let secrets: Vec<String> = args.redact.into_iter().filter(|field| !field.is_empty()).collect();
    if !secrets.is_empty() {
        opening = opening.redact(move |shown| (shown.kind != RedactableKind::Error).then(|| redact::without(&secrets, shown.text)));
    }
    if let Some(number) = args.partition {
        opening = opening.partition(number);
    }
    let session = Session { stage, opening, partition: args.partition, is_json: args.json };
    // Boxed: the type of the whole future would be too deep for the compiler.
    Box::pin(dispatch(session, args.command)).await
}

async fn dispatch(mut session: Session<'_, '_>, command: Command) -> Result<(), Problem> {
    match command {
        Command::Machines => machines::run(&mut session).await,
        Command::Ls(ls) => ls::run(&mut session, ls).await,
        Command::Show(show) => show::run(&mut session, &show).await,
        Command::Errors(wanted) if wanted.rejected => rejected::run(&mut session, &wanted).await,
        Command::Errors(wanted) => errors::run(&mut session, &wanted).await,
        Command::Due(few) => due::run(&mut session, few).await,
        Command::Schedules(wanted) => schedules::run(&mut session, wanted).await,
        Command::Workers => workers::run(&mut session).await,
        Command::Limits { act } => limits::run(&mut session, act).await,
        Command::Console(console) => console::run(&mut session, console).await,
        Command::Simulate(simulate) => simulate::run(&mut session, &simulate).await,
        Command::Graph(graph) => graph::run(&mut session, &graph).await,
        Command::Send(send) => send::run(&mut session, send).await,
        Command::Retry(acting) => act::run(&mut session, Act::Retry, acting).await,
        Command::Cancel(acting) => act::run(&mut session, Act::Cancel, acting).await,
        Command::Pause(acting) => act::run(&mut session, Act::Pause, acting).await,
        Command::Resume(acting) => act::run(&mut session, Act::Resume, acting).await,
        Command::Skip(acting) => act::run(&mut session, Act::Skip, acting).await,
        Command::Doctor { deep, strict } => doctor::run(&mut session, deep, strict).await,
        Command::Wait(wait) => wait::run(&mut session, &wait).await,
        Command::Stats(stats) => stats::run(&mut session, &stats).await,
        Command::Migrate(migrate) => migrate::run(&mut session, &migrate).await,
        Command::Partitions(partitions) => partitions::run(&mut session, &partitions).await,
        Command::Export(export) => export::run(&mut session, &export).await,
        Command::Import(import) => import::run(&mut session, &import).await,
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "fsm", &mut script);
            session.stage.text(&String::from_utf8_lossy(&script))
        }
        Command::Man => man(session.stage),
    }
}

/// Prints the manual page of the command, followed by those of its subcommands.
fn man(stage: &mut Stage<'_>) -> Result<(), Problem> {
    let mut page = Vec::new();
    let mut command = Args::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
        let name = format!("fsm {}", one.get_name());
        clap_mangen::Man::new(one.clone().display_name(name)).render(&mut page)?;
    }
    stage.text(&String::from_utf8_lossy(&page))
}

/// Converts a path to the URL of a SQLite file. A URL is returned unchanged.
fn url(database: &str) -> String {
    let is_url = database.contains("://") || database.starts_with("sqlite:") || database.starts_with("postgres");
    if is_url && !std::path::Path::new(database).is_file() {
        return database.to_owned();
    }
    // Characters with a meaning in a URL are escaped in a path.
    format!("sqlite://{}", database.replace('%', "%25").replace('?', "%3f"))
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn a_path_alone_is_a_sqlite_file() {
        let cases = [
            ("payments.db", "sqlite://payments.db"),
            ("/var/lib/my data/100%?.sqlite3", "sqlite:///var/lib/my data/100%25%3f.sqlite3"),
            ("sqlite://payments.db", "sqlite://payments.db"),
            ("postgres://me@host/db?sslmode=require", "postgres://me@host/db?sslmode=require"),
        ];
        for (given, expected) in cases {
            assert_eq!(url(given), expected);
        }
    }
}

//! The `fsm` command as a library: inspect and operate durable state machines at the terminal, without access to their code, or inside the
//! program as [`embedded`].

pub mod args;
mod clean;
mod command;
pub mod embedded;
pub mod problem;
mod progress;
mod redact;
pub mod stage;
mod table;

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use fsm_runtime::admin::Opening;
use fsm_runtime::engine_access::EngineAccess;

use args::Args;
use problem::Problem;
use stage::Stage;

/// Runs the command with `arguments`, of which the first is the program's name. Returns the exit code: 0 done, 1 failed, 2 called wrongly,
/// 3 not found, 4 refused, 5 conflict, 6 the instance is in error, 7 database or schema.
pub async fn run(arguments: impl IntoIterator<Item = OsString>, stage: &mut Stage<'_>) -> u8 {
    match parsed(Args::command(), arguments) {
        Ok((args, _)) => {
            let opening = command::opening(args.database.as_deref());
            ended(command::run(args, opening, stage).await, stage)
        }
        Err(error) => print_usage(&error, stage),
    }
}

/// Like [`run`], on the database of the program that calls it.
pub async fn run_inside(inside: impl Into<EngineAccess>, arguments: impl IntoIterator<Item = OsString>, stage: &mut Stage<'_>) -> u8 {
    let command = Args::command().mut_arg("database", |database| database.hide(true)).mut_arg("redact", |redact| redact.hide(true));
    match parsed(command, arguments) {
        Ok((_, true)) => ended(Err(Problem::Usage("the program has its database, and says itself what is secret".into())), stage),
        Ok((args, false)) => ended(command::run(Args { redact: Vec::new(), ..args }, Opening::inside(inside), stage).await, stage),
        Err(error) => print_usage(&error, stage),
    }
}

/// Parses the arguments. The flag is true if they name a database or fields to redact.
fn parsed(command: clap::Command, arguments: impl IntoIterator<Item = OsString>) -> Result<(Args, bool), clap::Error> {
    let matches = command.try_get_matches_from(arguments)?;
    let is_said = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let names_any = ["database", "redact"].into_iter().any(is_said);
    Ok((Args::from_arg_matches(&matches)?, names_any))
}

fn ended(done: Result<(), Problem>, stage: &mut Stage<'_>) -> u8 {
    let flushed = stage.out.flush().map_err(Problem::from);
    match done.and(flushed) {
        Ok(()) => 0,
        Err(problem) => {
            let text = problem.to_string();
            if !text.is_empty() {
                stage.say(&format!("fsm: {text}"));
            }
            problem.code()
        }
    }
}

/// Help and version go to the standard output, errors of usage to the standard error.
fn print_usage(error: &clap::Error, stage: &mut Stage<'_>) -> u8 {
    let text = error.render().ansi().to_string();
    let side = if error.use_stderr() { &mut stage.talk } else { &mut stage.out };
    // If that side is closed, nobody reads the text.
    let _ = side.write_all(text.as_bytes()).and_then(|()| side.flush());
    u8::try_from(error.exit_code()).unwrap_or(2)
}

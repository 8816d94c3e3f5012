//! The `fsm` command as a library: inspect and operate durable state machines at the terminal, with no access to their code.

pub mod args;
mod clean;
mod command;
pub mod problem;
pub mod stage;
mod table;

use std::ffi::OsString;

use clap::Parser;

use args::Args;
use problem::Problem;
use stage::Stage;

/// Runs the command that `arguments` spell, the program's name first, and gives its exit code:
/// 0 done, 1 failed, 2 called wrongly, 3 not found, 4 refused, 5 conflict, 6 the instance is in error, 7 database or schema.
pub async fn run(arguments: impl IntoIterator<Item = OsString>, stage: &mut Stage<'_>) -> u8 {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(told) => return tell(&told, stage),
    };
    let done = command::run(args, stage).await;
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

/// Help and version are data; how a command was called wrongly is talk.
fn tell(told: &clap::Error, stage: &mut Stage<'_>) -> u8 {
    let text = told.render().ansi().to_string();
    let side = if told.use_stderr() { &mut stage.talk } else { &mut stage.out };
    // Whoever closed that side does not want to know.
    let _ = side.write_all(text.as_bytes()).and_then(|()| side.flush());
    u8::try_from(told.exit_code()).unwrap_or(2)
}

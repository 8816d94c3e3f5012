//! The `fsm` command.

use std::io::{BufReader, IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;

use fsm_cli::stage::Stage;

#[tokio::main]
async fn main() -> ExitCode {
    let width = stdout().is_terminal().then(|| terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0)));
    let actor = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|actor| !actor.is_empty());
    let mut stage = Stage {
        out: Box::new(anstream::AutoStream::auto(stdout())),
        talk: Box::new(anstream::AutoStream::auto(stderr())),
        input: Box::new(BufReader::new(stdin())),
        width,
        answers: stdin().is_terminal() && stderr().is_terminal(),
        now: None,
        actor,
    };
    ExitCode::from(fsm_cli::run(std::env::args_os(), &mut stage).await)
}

//! The `fsm` command.

use std::process::ExitCode;

use fsm_cli::stage::Stage;

#[tokio::main]
async fn main() -> ExitCode {
    ExitCode::from(fsm_cli::run(std::env::args_os(), &mut Stage::of_process()).await)
}

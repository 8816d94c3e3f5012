//! The command inside the program that has the code: the same words, on the connections that the program has.

use std::ffi::OsString;
use std::process::ExitCode;

use fsm_runtime::engine_access::EngineAccess;

use crate::stage::Stage;

/// Runs the command that this process was called with, `program ls` or `program send order o-1 Paid '{…}'`, on the database of `inside`: a
/// `&Runtime` or a `&Client`.
///
/// It is the `fsm` command, but for three things. A payload that does not decode as the event's type is called wrong before anything is
/// sent. Secrets are taken out as the builder's `redact` says, and what the builder's `codec` sealed is read. And the machines are those of
/// this program's code, also before they were ever started.
///
/// A runtime goes on working meanwhile; a client only looks and sends. The exit codes are those of the command.
pub async fn run(inside: impl Into<EngineAccess>) -> ExitCode {
    run_args(inside, std::env::args_os()).await
}

/// The same with other words than those the process was called with. The first is the program's name.
pub async fn run_args(inside: impl Into<EngineAccess>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
    let arguments = arguments.into_iter().map(Into::into);
    ExitCode::from(crate::run_inside(inside, arguments, &mut Stage::of_process()).await)
}

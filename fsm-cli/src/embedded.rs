//! The command inside a program: the same arguments, with the program's connections and machines.

use std::ffi::OsString;
use std::process::ExitCode;

use fsm_runtime::engine_access::EngineAccess;

use crate::stage::Stage;

/// Runs the command from this process's arguments, such as `program ls` or `program send order o-1 Paid '{…}'`, on the database of
/// `inside`: a `&Runtime` or a `&Client`.
///
/// It differs from the `fsm` command in three ways. A payload that does not decode as the event's type is an error before anything is sent.
/// The builder's `redact` and `codec` apply. And the machines are those of this program's code, even before they were first started.
///
/// On a database with partitions it works as the `fsm` command does: `--partition N` selects one, a command about one instance finds its partition
/// by the key, and `doctor`, `migrate` and `partitions` go through all of them. It does not create partitions.
///
/// A runtime continues to work meanwhile. The exit codes are those of the command.
pub async fn run(inside: impl Into<EngineAccess>) -> ExitCode {
    run_args(inside, std::env::args_os()).await
}

/// Like [`run`], with other arguments than those of the process. The first one is the program's name.
pub async fn run_args(inside: impl Into<EngineAccess>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
    let arguments = arguments.into_iter().map(Into::into);
    ExitCode::from(crate::run_inside(inside, arguments, &mut Stage::of_process()).await)
}

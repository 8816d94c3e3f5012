//! `fsm console`: serves the web console until Ctrl-C or SIGTERM.

use fsm_console::Console;

use super::session::Session;
use crate::args;
use crate::problem::Problem;

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: args::Console) -> Result<(), Problem> {
    // A database that cannot be used is an error here, not a page. A partition that cannot be used is a line on a page.
    let partitions = session.partitions().await?;
    if partitions.len() < 2 {
        if wanted.read_only { session.to_read().await? } else { session.to_act().await? }.close_if_own().await;
    }
    let mut console = Console::open(session.opening.clone()).partitions(partitions);
    if let (Some(user), Some(password)) = (wanted.user, wanted.password) {
        console = console.basic_auth(user, password);
    }
    if wanted.read_only {
        console = console.read_only();
    }
    if wanted.hide_payloads {
        console = console.hide_payloads();
    }
    let address = wanted.listen;
    session.stage.say(&format!("the console is at http://{address}; Ctrl-C ends it"));
    session.stage.flush()?;
    let stop = async {
        // A signal that cannot be awaited must not end the console at once.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    console.serve(address, stop).await.map_err(|error| Problem::Failed(format!("the console cannot be served at {address}: {error}")))
}

//! The event is read back from the database.
use fsm::prelude::*;

struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

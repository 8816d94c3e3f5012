//! A mistake in a verb is not told again by its machine.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb(timeout = "5 s")]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> closed;
        end closed;
    }
}

fn main() {}

//! A machine has a name in the database.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door {
        start opened;
        end opened;
    }
}

fn main() {}

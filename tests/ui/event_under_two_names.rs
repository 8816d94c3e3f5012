//! An event type has one name in the database.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Shut;

type Alias = Shut;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Shut) -> Result {
    Ok(())
}

#[verb]
async fn locked(_event: Alias) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        on Shut {
            opened -> closed;
            closed -> locked;
        }
        end locked;
    }
}

fn main() {}

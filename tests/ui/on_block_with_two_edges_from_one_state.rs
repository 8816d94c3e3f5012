//! An event takes one edge.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Shut;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Shut) -> Result {
    Ok(())
}

#[verb]
async fn locked(_event: Shut) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        on Shut {
            opened -> closed;
            opened -> locked;
        }
        end closed, locked;
    }
}

fn main() {}

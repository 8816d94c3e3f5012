//! Every state is on a path from a start.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[derive(Serialize, Deserialize)]
struct Locked;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

#[verb]
async fn locked(_event: Locked) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        end opened;
        closed -> locked;
        locked -> closed;
    }
}

fn main() {}

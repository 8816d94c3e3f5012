//! A function without `#[verb]` has no type of its name, and a type is no verb.
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

async fn closed(_event: Closed) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> closed | Locked | brken;
        end closed, Locked, brken;
    }
}

fn main() {}

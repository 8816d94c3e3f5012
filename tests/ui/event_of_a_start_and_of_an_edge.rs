//! A start that shares its event type with an edge stands in an `on` block.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn reopened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> reopened;
        end reopened;
    }
}

fn main() {}

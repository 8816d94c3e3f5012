//! Each edge, start and end is declared once.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        start opened;
        opened -> closed;
        any(opened, opened) -> closed;
        end closed, closed;
    }
}

fn main() {}

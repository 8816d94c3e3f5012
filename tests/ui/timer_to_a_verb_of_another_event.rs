//! A timer delivers `Timeout`.
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
        opened after "30m" -> closed;
        end closed;
    }
}

fn main() {}

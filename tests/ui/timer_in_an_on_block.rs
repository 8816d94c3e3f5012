//! A timer delivers `Timeout`, and no other event.
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
        on Closed {
            opened after "5s" -> closed;
        }
        end closed;
    }
}

fn main() {}

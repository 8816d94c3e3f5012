//! A timer has a duration.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn expired(_event: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened after "30 minutes" -> expired;
        end expired;
    }
}

fn main() {}

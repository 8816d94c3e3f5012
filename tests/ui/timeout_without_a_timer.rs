//! Only a timer delivers `Timeout`.
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
        opened -> expired;
        end expired;
    }
}

fn main() {}

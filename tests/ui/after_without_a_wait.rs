//! A timer says how long it waits.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Default, Serialize, Deserialize)]
struct Door {
    seconds: u64,
}

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine House = "house" {
        keeps Door;
        start opened;
        opened after -> expired;
        end expired;
    }
}

fn main() {}

//! A state has at most one timer.
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

#[verb]
async fn lost(_event: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened after "30m" -> expired;
        opened after "1h" -> lost;
        end expired, lost;
    }
}

fn main() {}

//! Timers and internal transitions interrupt nothing.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Serialize, Deserialize)]
struct Noted;
#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn noted(_event: Noted) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened stays on noted interrupts;
        opened -> closed;
        opened after "5s" -> expired interrupts;
        end closed, expired;
    }
}

fn main() {}

//! A start interrupts nothing.
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

fsm! {
    machine Door = "door" {
        start opened interrupts;
        opened stays on noted;
        opened -> closed;
        end closed;
    }
}

fn main() {}

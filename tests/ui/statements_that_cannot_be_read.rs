//! A statement that is wrong does not hide the next one.
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
        start opened
        opened -> closed;
        opened => closed;
        keeps u32;
        keeps u64;
        retry(3, "1 s");
        end closed
    }
}

fn main() {}

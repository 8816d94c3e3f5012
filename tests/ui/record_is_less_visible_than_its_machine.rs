//! A record is as visible as its machine.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Default, Serialize, Deserialize)]
struct Record;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    pub machine Door = "door" {
        keeps Record;
        start opened;
        end opened;
    }
}

fn main() {}

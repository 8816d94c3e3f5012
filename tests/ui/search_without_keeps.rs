//! `search` belongs to the record.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Default, Serialize, Deserialize)]
struct Door {
    colour: String,
    hinges: Vec<u8>,
}

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine House = "house" {
        search(colour);
        start opened;
        end opened;
    }
}

fn main() {}

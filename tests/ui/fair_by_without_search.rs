//! `fair_by` needs `search`.
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
        keeps Door, fair_by = colour;
        start opened;
        end opened;
    }
}

fn main() {}

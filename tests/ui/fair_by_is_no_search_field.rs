//! `fair_by` names a search field.
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
        keeps Door, search(colour), fair_by = color;
        start opened;
        end opened;
    }
}

fn main() {}

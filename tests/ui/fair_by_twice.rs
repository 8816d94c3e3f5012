//! A machine shares its slots by one field.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Default, Serialize, Deserialize)]
struct Door {
    colour: String,
    maker: String,
    hinges: Vec<u8>,
}

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine House = "house" {
        keeps Door, search(colour, maker), fair_by = colour, fair_by = maker;
        start opened;
        end opened;
    }
}

fn main() {}

//! A verb takes the record of its machine.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Default, Serialize, Deserialize)]
struct Record;

#[verb]
async fn opened(_record: &mut u32, _event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        keeps Record;
        start opened;
        end opened;
    }
}

fn main() {}

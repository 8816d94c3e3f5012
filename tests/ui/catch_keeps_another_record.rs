//! A catch verb takes the record of the machine.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Default, Serialize, Deserialize)]
struct Record;

#[verb]
async fn recover(_record: &mut u32, _event: Caught<Opened>) -> Result {
    Ok(())
}

#[verb]
#[retry(10, "5s", catch = recover)]
async fn opened(_event: Opened) -> Result {
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

//! A verb with a record stands in a machine that keeps one.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_record: &mut u32, _event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        end opened;
    }
}

fn main() {}

//! A record is written to the database.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

struct Record;

#[verb]
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

//! A name is lower-case letters, digits, `_` and `-`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "Front Door" {
        start opened;
        end opened;
    }
}

fn main() {}

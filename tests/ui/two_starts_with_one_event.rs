//! An event says where an instance begins.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn reopened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened | reopened;
        end opened, reopened;
    }
}

fn main() {}

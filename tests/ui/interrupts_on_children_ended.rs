//! The end of all children waits until the instance is at rest.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Ship;

#[verb]
async fn shipping(_event: Ship) -> Result {
    Ok(())
}
#[verb]
async fn delivered(_all: ChildrenEnded) -> Result {
    Ok(())
}

fsm! {
    machine Order = "order" {
        start shipping;
        shipping -> delivered interrupts;
        end delivered;
    }
}

fn main() {}

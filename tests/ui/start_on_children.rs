//! An instance cannot start with the end of its own children.
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
        start shipping | delivered;
        shipping -> delivered;
        end delivered;
    }
}

fn main() {}

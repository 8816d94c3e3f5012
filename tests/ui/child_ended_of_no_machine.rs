//! `ChildEnded` names the machine of the child.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Ship;
#[derive(Serialize, Deserialize)]
struct Pack;

#[verb]
async fn shipping(_event: Ship) -> Result {
    Ok(())
}
#[verb]
async fn reordered(_child: ChildEnded<Pack>) -> Result {
    Ok(())
}

fsm! {
    machine Order = "order" {
        start shipping;
        shipping -> reordered;
        end reordered;
    }
}

fn main() {}

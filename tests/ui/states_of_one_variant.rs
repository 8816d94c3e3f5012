//! Each state is a variant of the state enum.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
async fn step_1(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn step1(_event: Closed) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start step_1 | step1;
        end step_1, step1;
    }
}

fn main() {}

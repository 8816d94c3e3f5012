//! A default catch verb fits every verb that has no policy.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

#[verb]
async fn recover(_event: Caught<Opened>) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        retry(3, "1s", catch = recover);
        start opened;
        opened -> closed;
        end closed;
    }
}

fn main() {}

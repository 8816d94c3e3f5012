//! A catch verb takes `Caught` of the event it catches for.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb]
async fn recover(_event: Caught<Closed>) -> Result {
    Ok(())
}

#[verb]
#[retry(10, "5s", catch = recover)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

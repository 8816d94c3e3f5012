//! The limit of a verb is a name, given once.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb(limit = 5)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Closed;

#[verb(limit = "door", limit = "")]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

fn main() {}

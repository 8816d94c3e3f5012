//! A timeout is a duration.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb(timeout = "30 seconds")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb(timeout = 30)]
async fn reopened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

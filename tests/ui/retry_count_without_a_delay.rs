//! A policy says how long to wait.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(10)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

//! `#[verb]` has no such options.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb(timeuot = "30s", queue("slow"), timeout = "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

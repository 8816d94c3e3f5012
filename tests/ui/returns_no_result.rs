//! A verb returns a `Result`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> (u32, u32) {
    (1, 2)
}

#[verb]
async fn reopened(_event: Opened) -> Option<()> {
    None
}

#[verb]
async fn closed(_event: Opened) -> Result<u32> {
    Ok(1)
}

fn main() {}

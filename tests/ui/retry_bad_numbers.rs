//! Every mistake is told at once.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry("5 s", "2mins", backoff = 0.5, jitter = 2, within = 3)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

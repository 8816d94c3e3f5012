//! `max_attempts` counts the first attempt.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(max_attempts = 0, min = "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

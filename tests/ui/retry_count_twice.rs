//! `retries` and `max_attempts` are one number.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(retries = 10, max_attempts = 11, min = "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

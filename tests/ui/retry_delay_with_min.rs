//! A delay function alone says how long to wait.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

fn my_delay(_: &FailedAttempt<'_>) -> Option<Duration> {
    None
}

#[verb]
#[retry(delay = my_delay, min = "5s", backoff = 3.0)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

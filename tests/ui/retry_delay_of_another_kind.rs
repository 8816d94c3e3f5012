//! A delay function is `fn(&FailedAttempt) -> Option<Duration>`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

fn my_delay(attempt: u32) -> Duration {
    Duration::from_secs(attempt.into())
}

#[verb]
#[retry(10, delay = my_delay)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

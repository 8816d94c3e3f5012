//! Each option is given once.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(10, "5s", min = "6s", jitter = 0.1, jitter = 0.2)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

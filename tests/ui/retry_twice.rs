//! A verb has one policy.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[retry("1s")]
#[verb]
#[fsm::retry(10, "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

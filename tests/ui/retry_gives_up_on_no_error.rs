//! What is given up on is an error type.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

struct Declined;

#[verb]
#[retry(10, "5s", give_up_on(Declined))]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

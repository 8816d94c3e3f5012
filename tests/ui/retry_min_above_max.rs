//! The wait grows from `min` to `max`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(10, "1h", "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

//! A retry policy belongs to a verb.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[retry(10, "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

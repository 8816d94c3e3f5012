//! `none` stands alone.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(none, min = "5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

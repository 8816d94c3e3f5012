//! A verb that blocks its thread is a plain function.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb(blocking)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

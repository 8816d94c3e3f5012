//! A verb owns its event.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: &Opened) -> Result {
    Ok(())
}

fn main() {}

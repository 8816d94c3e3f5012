//! A verb is async.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

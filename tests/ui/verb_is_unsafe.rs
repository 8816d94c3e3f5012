//! A verb is called by the engine, which promises it nothing.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async unsafe fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

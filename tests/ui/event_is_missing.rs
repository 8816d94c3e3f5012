//! The last parameter of a verb is its event.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_ctx: &mut Ctx<'_>) -> Result {
    Ok(())
}

#[verb]
async fn closed() -> Result {
    Ok(())
}

fn main() {}

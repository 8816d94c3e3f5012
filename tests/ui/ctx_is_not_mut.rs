//! The context is borrowed mutably.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_ctx: &Ctx<'_>, _event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn reopened(_ctx: Ctx<'_>, _event: Opened) -> Result {
    Ok(())
}

fn main() {}

//! A verb names itself in its context.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Serialize, Deserialize)]
struct Closed;
#[derive(Serialize, Deserialize)]
struct Locked;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(ctx: &mut Ctx<'_, opened>, _event: Closed) -> Result {
    ctx.next(Locked)?;
    Ok(())
}

fn main() {}

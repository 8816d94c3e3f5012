//! A verb that names itself in its context requests only events that an edge out of its state accepts.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Serialize, Deserialize)]
struct Closed;
#[derive(Serialize, Deserialize)]
struct Locked;

#[derive(Serialize, Deserialize)]
struct Painted;

#[verb]
async fn opened(ctx: &mut Ctx<'_, opened>, _event: Opened) -> Result {
    ctx.next(Locked)?;
    Ok(())
}

#[verb]
async fn closed(ctx: &mut Ctx<'_, closed>, _event: Closed) -> Result {
    ctx.next(Locked)?;
    Ok(())
}

#[verb]
async fn painted(_event: Painted) -> Result {
    Ok(())
}

#[verb]
async fn locked(_event: Locked) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> closed;
        opened stays on painted;
        closed -> locked;
        end locked;
    }
}

fn main() {}

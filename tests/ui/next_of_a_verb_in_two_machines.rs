//! A verb that names itself in its context stands on the edges of one machine.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Serialize, Deserialize)]
struct Closed;
#[derive(Serialize, Deserialize)]
struct Locked;

#[verb]
async fn opened(ctx: &mut Ctx<'_, opened>, _event: Opened) -> Result {
    ctx.next(Closed)?;
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
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
        end closed;
    }
}

fsm! {
    machine Gate = "gate" {
        start opened;
        opened -> locked;
        end locked;
    }
}

fn main() {}

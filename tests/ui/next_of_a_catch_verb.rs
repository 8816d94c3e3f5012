//! A catch verb stands on no edge, so that its context cannot check `ctx.next`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Serialize, Deserialize)]
struct Closed;
#[derive(Serialize, Deserialize)]
struct Locked;

#[verb]
#[retry(none)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn recover(ctx: &mut Ctx<'_, recover>, _caught: Caught<Opened>) -> Result {
    ctx.next(Closed)?;
    Ok(())
}


fn main() {}

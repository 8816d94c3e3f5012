//! The context comes first.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Default, Serialize, Deserialize)]
struct Record;

#[verb]
async fn opened(_record: &mut Record, _ctx: &mut Ctx<'_>, _event: Opened) -> Result {
    Ok(())
}

fn main() {}

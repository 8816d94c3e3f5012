//! An attribute is imported, also below `#[verb]`.
use fsm::{Result, verb};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry("5s")]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

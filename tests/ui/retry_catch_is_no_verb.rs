//! A catch verb is a verb.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

async fn recover(_event: Caught<Opened>) -> Result {
    Ok(())
}

#[verb]
#[retry(10, "5s", catch = recover)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

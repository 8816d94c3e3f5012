//! An option that there is not.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
#[retry(10, "5s", jiter = 0.1)]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fn main() {}

//! The function under `give_up_if` takes the error type of the verb.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

fn is_permanent(error: &std::num::ParseIntError) -> bool {
    error.to_string().is_empty()
}

#[verb]
#[retry(3, "5s", give_up_if = is_permanent)]
async fn opened(_event: Opened) -> Result<(), std::fmt::Error> {
    Err(std::fmt::Error)
}

fn main() {}

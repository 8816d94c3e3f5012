//! The error of a verb is a `std::error::Error`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Debug)]
struct Declined;

#[verb]
async fn opened(_event: Opened) -> Result<(), Declined> {
    Err(Declined)
}

fn main() {}

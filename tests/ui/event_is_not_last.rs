//! The event comes last, and there is one.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

struct Gateway;

#[verb]
async fn opened(_event: Opened, _gateway: Data<Gateway>) -> Result {
    Ok(())
}

#[verb]
async fn closed(_gateway: Gateway, _event: Closed) -> Result {
    Ok(())
}

fn main() {}

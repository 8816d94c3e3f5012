//! Shared values come as `Data<T>`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

struct Gateway;

#[verb]
async fn opened(_gateway: &Gateway, _event: Opened) -> Result {
    Ok(())
}

fn main() {}

//! A verb has no type parameters, also not by `impl Trait`.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

trait Gateway: Send + Sync {}

#[verb]
async fn opened<G: Gateway>(_gateway: Data<G>, _event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn reopened(_event: impl Serialize) -> Result {
    Ok(())
}

fn main() {}

//! A verb says whether it succeeded.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) {}

fn main() {}

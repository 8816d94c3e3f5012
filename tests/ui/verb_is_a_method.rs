//! A verb is a free function.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

struct Door;

impl Door {
    #[verb]
    async fn opened(&self, _event: Opened) -> Result {
        Ok(())
    }
}

fn main() {}

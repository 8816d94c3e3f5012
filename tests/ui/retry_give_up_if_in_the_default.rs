//! The default policy is for several error types.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

fn is_permanent(failure: &Failure) -> bool {
    failure.to_string().is_empty()
}

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        retry(3, "5s", give_up_if = is_permanent);
        start opened;
        end opened;
    }
}

fn main() {}

//! The function behind `after` returns a duration or a point in time.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;
#[derive(Default, Serialize, Deserialize)]
struct Door {
    seconds: u64,
}

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fn open_time(door: &Door) -> u64 {
    door.seconds
}

fsm! {
    machine House = "house" {
        keeps Door;
        start opened;
        opened after open_time -> expired;
        end expired;
    }
}

fn main() {}

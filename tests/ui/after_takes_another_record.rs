//! The function behind `after` takes the record of the machine.
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

fn open_time(seconds: &u64) -> Duration {
    Duration::from_secs(*seconds)
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

//! Within a machine names are unique.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Reopened;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn reopened(_event: Reopened) -> Result {
    Ok(())
}

mod front {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub struct Closed;

    #[verb]
    pub async fn closed(_event: Closed) -> Result {
        Ok(())
    }
}

mod back {
    use super::*;

    #[derive(Serialize, Deserialize)]
    pub struct Closed;

    #[verb]
    pub async fn closed(_event: Closed) -> Result {
        Ok(())
    }
}

fsm! {
    machine Door = "door" {
        start opened | reopened;
        opened -> front::closed;
        reopened -> back::closed;
        end closed;
    }
}

fn main() {}

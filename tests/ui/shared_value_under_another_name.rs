//! `Data` under another name is not seen by a macro.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[derive(Serialize, Deserialize)]
struct Cancel;

use fsm::Data as Shared;

struct Gateway;

#[verb]
async fn opened(_gateway: Shared<Gateway>, _event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> closed;
        end closed;
    }
}

fn main() {
    async fn close(doors: fsm::Handle<Door>) -> Result<bool, fsm::Error> {
        doors.send("d-1", Closed).await?;
        Ok(doors.get("d-1").await?.is_some_and(|door| door.state == Some(DoorState::Closed)))
    }
    let _ = close;
}

//! A statement that there is not, but for one letter.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[derive(Serialize, Deserialize)]
struct Cancel;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

#[verb]
async fn cancelled(_event: Cancel) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        strat opened;
        opened -> closed;
        ends closed;
    }
}

fn main() {
    async fn close(doors: fsm::Handle<Door>) -> Result<bool, fsm::Error> {
        doors.send("d-1", Closed).await?;
        Ok(doors.get("d-1").await?.is_some_and(|door| door.state == Some(DoorState::Closed)))
    }
    let _ = close;
}

//! What a verb holds over an await can go to another thread.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[verb]
async fn opened(_event: Opened) -> Result {
    let held = std::rc::Rc::new(1);
    tokio::task::yield_now().await;
    drop(held);
    Ok(())
}

fn main() {}

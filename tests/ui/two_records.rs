//! An instance has one record.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Default, Serialize, Deserialize)]
struct Record;

#[verb]
async fn opened(_record: &mut Record, _more: &mut u32, _event: Opened) -> Result {
    Ok(())
}

fn main() {}

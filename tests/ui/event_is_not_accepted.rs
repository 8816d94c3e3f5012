//! A machine takes only the events of its verbs, and never `Timeout` from a sender.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Opened;

#[derive(Serialize, Deserialize)]
struct Closed;

#[derive(Serialize, Deserialize)]
struct Painted;

#[verb]
async fn opened(_event: Opened) -> Result {
    Ok(())
}

#[verb]
async fn closed(_event: Closed) -> Result {
    Ok(())
}

#[verb]
async fn expired(_event: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start opened;
        opened -> closed;
        opened after "5s" -> expired;
        end closed, expired;
    }
}

fn send<E>(_event: E)
where
    Door: fsm::__private::Accepts<E>,
{
}

fn senders(timeout: Timeout) {
    send(Opened);
    send(Painted);
    send(timeout);
}

fn main() {}

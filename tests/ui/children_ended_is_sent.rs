//! Nobody sends the events of children.
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Ship;
#[derive(Serialize, Deserialize)]
struct Pack;
#[derive(Serialize, Deserialize)]
struct Deliver;

#[verb]
async fn packed(_event: Pack) -> Result {
    Ok(())
}
#[verb]
async fn handed(_event: Deliver) -> Result {
    Ok(())
}

fsm! {
    machine Parcel = "parcel" {
        start packed;
        packed -> handed;
        end handed;
    }
}

#[verb]
async fn shipping(_event: Ship) -> Result {
    Ok(())
}
#[verb]
async fn reordered(_child: ChildEnded<Parcel>) -> Result {
    Ok(())
}
#[verb]
async fn delivered(_all: ChildrenEnded) -> Result {
    Ok(())
}

fsm! {
    machine Order = "order" {
        start shipping;
        shipping stays on reordered;
        shipping -> delivered;
        end delivered;
    }
}

fn senders(orders: fsm::Handle<Order>, all: ChildrenEnded, one: ChildEnded<Parcel>) {
    let _ = orders.send("o-1", all);
    let _ = orders.send("o-1", one);
}

fn main() {}

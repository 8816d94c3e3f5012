//! A child starts with an event that its machine accepts.
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
async fn shipping(ctx: &mut Ctx<'_>, _event: Ship) -> Result {
    ctx.child::<Parcel>("p-1", Ship)?;
    ctx.start_children::<Parcel>([("p-2", Ship)])?;
    Ok(())
}

fsm! {
    machine Order = "order" {
        start shipping;
        end shipping;
    }
}

fn main() {}

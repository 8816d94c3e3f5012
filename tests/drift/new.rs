//! The new code: `labelled` is renamed to `addressed`, and the events are renamed accordingly.

use super::old::failing;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack {
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Address {
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship;

#[verb]
#[retry("5s", catch = lost_label)]
async fn packed(ctx: &mut Ctx<'_>, event: Pack) -> Result {
    failing(ctx, event.failures)
}
#[verb]
#[retry(2, "5s")]
async fn addressed(ctx: &mut Ctx<'_>, event: Address) -> Result {
    failing(ctx, event.failures)
}
#[verb]
async fn shipped(_event: Ship) -> Result {
    Ok(())
}
#[verb]
async fn returned(timeout: Timeout) -> Result {
    assert_eq!(timeout.state, "addressed");
    Ok(())
}
#[verb]
async fn lost_label(_caught: Caught<Pack>) -> Result {
    Ok(())
}

fsm! {
    pub machine Parcel = "parcel" {
        start packed;
        packed -> addressed;
        addressed -> shipped;
        addressed after "1h" -> returned;
        end shipped, returned;
    }
}

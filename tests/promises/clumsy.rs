//! A machine whose verb fails in each way that its event can request.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::payment::{GatewayError, Payment, checkout};

/// The number of successes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub done: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Deed {
    Nothing,
    Fail(String),
    Panic(String),
    Hang,
    SendToPayment,
}

/// Does what the event says.
#[verb(timeout = "50ms")]
#[retry(1, "5s")]
async fn did(ctx: &mut Ctx<'_>, record: &mut Tally, event: Deed) -> Result {
    match event {
        Deed::Nothing => {}
        Deed::Fail(text) => return Err(GatewayError(text).into()),
        Deed::Panic(text) => panic!("{text}"),
        Deed::Hang => std::future::pending().await,
        Deed::SendToPayment => {
            ctx.send::<Payment>("o-1", checkout())?;
        }
    }
    record.done += 1;
    Ok(())
}

fsm! {
    /// One verb, and all failures that are possible in it.
    pub machine Clumsy = "clumsy" {
        keeps Tally;
        start did;
        did -> did;
    }
}

pub fn clumsy() -> TestBedBuilder {
    TestBed::builder().only::<Clumsy>()
}

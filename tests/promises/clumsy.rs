//! A machine whose verb fails in every way that an event can name.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::payment::{GatewayError, Payment, checkout};

/// How often it went well.
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

/// Does as it is told.
#[verb(timeout = "50ms")]
#[retry(1, "5s")]
async fn did(ctx: &mut Ctx<'_>, record: &mut Tally, event: Deed) -> Result {
    match event {
        Deed::Nothing => {}
        Deed::Fail(text) => return Err(GatewayError(text).into()),
        Deed::Panic(text) => panic!("{text}"),
        Deed::Hang => std::future::pending().await,
        Deed::SendToPayment => ctx.send::<Payment>("o-1", checkout())?,
    }
    record.done += 1;
    Ok(())
}

fsm! {
    /// One verb, and all that can go wrong in it.
    pub machine Clumsy = "clumsy" {
        keeps Tally;
        start did;
        did -> did;
    }
}

pub fn clumsy() -> TestBedBuilder {
    TestBed::builder().only::<Clumsy>()
}

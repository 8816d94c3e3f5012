//! The old code, and two variants of it with other timers.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack {
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Label {
    pub failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ship;

pub fn failing(ctx: &Ctx<'_>, failures: u32) -> Result {
    if ctx.attempt() <= failures { Err(Failure::new("not yet")) } else { Ok(()) }
}

#[verb]
#[retry("5s", catch = mislabelled)]
async fn packed(ctx: &mut Ctx<'_>, event: Pack) -> Result {
    failing(ctx, event.failures)
}
#[verb]
#[retry(2, "5s")]
async fn labelled(ctx: &mut Ctx<'_>, event: Label) -> Result {
    failing(ctx, event.failures)
}
#[verb]
async fn shipped(_event: Ship) -> Result {
    Ok(())
}
#[verb]
async fn returned(timeout: Timeout) -> Result {
    assert_eq!(timeout.state, "labelled");
    Ok(())
}
#[verb]
async fn mislabelled(_caught: Caught<Pack>) -> Result {
    Ok(())
}

#[verb]
async fn forgotten(_timeout: Timeout) -> Result {
    Ok(())
}

/// The old code with one more timer, and one timer that is longer.
pub mod timed {
    use super::{forgotten, labelled, packed, returned, shipped};

    fsm::fsm! {
        pub machine Parcel = "parcel" {
            start packed;
            packed -> labelled;
            packed after "30m" -> forgotten;
            labelled -> shipped;
            labelled after "2h" -> returned;
            end shipped, returned, forgotten;
        }
    }
}

/// The old code without timers.
pub mod timeless {
    use super::{labelled, packed, shipped};

    fsm::fsm! {
        pub machine Parcel = "parcel" {
            start packed;
            packed -> labelled;
            labelled -> shipped;
            end shipped;
        }
    }
}

fsm! {
    pub machine Parcel = "parcel" {
        start packed;
        packed -> labelled;
        labelled -> shipped;
        labelled after "1h" -> returned;
        end shipped, returned;
    }
}

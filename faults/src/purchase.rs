//! The machine of the scenario `interrupt`: a purchase whose charge fails for a while, and whose customer cancels meanwhile.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::machine::{Purse, Work, done, granted, remember, work};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel(pub Work);

#[verb]
#[retry("20ms")]
async fn ordered(ctx: &mut Ctx<'_>, record: &mut Purse, ledger: Data<Ledger>, event: Order) -> Result {
    granted(ctx, &ledger, "ordered").await?;
    work(ctx, &ledger, &event.0).await?;
    remember(record, &event.0);
    done(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn charged(ctx: &mut Ctx<'_>, record: &mut Purse, ledger: Data<Ledger>, event: Charge) -> Result {
    granted(ctx, &ledger, "charged").await?;
    work(ctx, &ledger, &event.0).await?;
    remember(record, &event.0);
    done(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn cancelled(ctx: &mut Ctx<'_>, record: &mut Purse, ledger: Data<Ledger>, event: Cancel) -> Result {
    granted(ctx, &ledger, "cancelled").await?;
    work(ctx, &ledger, &event.0).await?;
    remember(record, &event.0);
    done(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn refunded(ctx: &mut Ctx<'_>, record: &mut Purse, ledger: Data<Ledger>, event: Cancel) -> Result {
    granted(ctx, &ledger, "refunded").await?;
    work(ctx, &ledger, &event.0).await?;
    remember(record, &event.0);
    done(ctx, &ledger)
}

fsm! {
    /// A purchase that can be cancelled at any time.
    pub machine Purchase = "purchase" {
        keeps Purse;
        start ordered;
        ordered -> charged;
        on Cancel {
            ordered -> cancelled interrupts;
            charged -> refunded;
        }
        end cancelled, refunded;
    }
}

//! The machine of the scenario `interrupt`: a purchase whose charge fails for a while, and whose customer cancels meanwhile.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::machine::{Totals, Work, add_to_totals, do_work, record_start, record_success};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cancel(pub Work);

#[verb]
#[retry("20ms")]
async fn ordered(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Order) -> Result {
    record_start(ctx, &ledger, "ordered").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn charged(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Charge) -> Result {
    record_start(ctx, &ledger, "charged").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn cancelled(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Cancel) -> Result {
    record_start(ctx, &ledger, "cancelled").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn refunded(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Cancel) -> Result {
    record_start(ctx, &ledger, "refunded").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

fsm! {
    /// A purchase that can be cancelled at any time.
    pub machine Purchase = "purchase" {
        keeps Totals;
        start ordered;
        ordered -> charged;
        on Cancel {
            ordered -> cancelled interrupts;
            charged -> refunded;
        }
        end cancelled, refunded;
    }
}

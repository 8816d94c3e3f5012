//! The machines of the scenario `family`: baskets whose items are their children. Some baskets are cancelled while their items are packed.

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Line};
use crate::machine::{Totals, Work, do_work, record_start, record_success};

/// Fills a basket with items of these amounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fill {
    #[serde(flatten)]
    pub work: Work,
    pub items: Vec<Work>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pack(pub Work);

/// The record of a basket has the numbers and the sum of its items.
#[verb]
#[retry("20ms")]
async fn filled(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Fill) -> Result {
    record_start(ctx, &ledger, "filled").await?;
    do_work(ctx, &ledger, &event.work).await?;
    let key = ctx.key().to_owned();
    for item in event.items {
        record.cents += item.cents;
        record.taken.push(item.n);
        ctx.child::<Item>(item_key(&key, item.n), Pack(item))?;
    }
    record_success(ctx, &ledger)
}

/// All items have ended when it runs. An item is only cancelled with its basket.
#[verb]
#[retry("20ms")]
async fn assembled(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, all: ChildrenEnded) -> Result {
    record_start(ctx, &ledger, "assembled").await?;
    let expected = record.taken.len() as u64;
    if (all.count(), all.in_state(ItemState::Packed)) != (expected, expected) {
        let says = format!("{} has {expected} items, and was called with {:?}", ctx.key(), all.counts);
        ledger.sure(&Line::Unexpected { says }).await?;
    }
    record_success(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn packed(ctx: &mut Ctx<'_>, ledger: Data<Ledger>, event: Pack) -> Result {
    record_start(ctx, &ledger, "packed").await?;
    do_work(ctx, &ledger, &event.0).await?;
    record_success(ctx, &ledger)
}

/// The key of an item.
pub fn item_key(basket: &str, n: u32) -> String {
    format!("{basket}/{n}")
}

fsm! {
    /// A basket, until all of its items are packed.
    pub machine Basket = "basket" {
        keeps Totals;
        retry("20ms");
        start filled;
        filled -> assembled;
        end assembled;
    }
}

fsm! {
    /// An item of a basket.
    pub machine Item = "item" {
        start packed;
        end packed;
    }
}

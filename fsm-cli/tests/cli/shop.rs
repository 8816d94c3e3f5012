//! A machine for orders. Its gateway fails as often as the event says.

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Placed {
    pub cents: u64,
    pub fails: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Paid {
    pub receipt: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shipped;

/// The record of an order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub cents: u64,
}

#[derive(Debug)]
struct Trouble(String);
impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Trouble {}

#[verb]
#[retry(10, "5s", "1h")]
async fn placed(ctx: &mut Ctx<'_>, sum: &mut Sum, event: Placed) -> Result {
    if ctx.attempt() <= event.fails {
        return Err(Trouble(format!("the gateway is down, {} to go", event.fails - ctx.attempt())).into());
    }
    sum.cents = event.cents;
    Ok(())
}

#[verb]
async fn paid(event: Paid) -> Result {
    if event.receipt.is_empty() { Err(Trouble("no receipt".into()).into()) } else { Ok(()) }
}

#[verb]
async fn shipped(_event: Shipped) -> Result {
    Ok(())
}

#[verb]
async fn expired(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    /// An order, from the basket to the door.
    pub machine Order = "order" {
        keeps Sum;
        start placed;
        placed -> paid;
        placed after "30m" -> expired;
        paid -> shipped;
        end shipped, expired;
    }
}

/// A builder of test beds with the order machine only.
pub fn orders() -> TestBedBuilder {
    TestBed::builder().only::<Order>()
}

/// Creates three orders: one that waits for its second attempt, one in error because its receipt is missing, and one that is completed.
pub async fn three(bed: &TestBed) {
    let orders = bed.machine::<Order>();
    orders.send("o-1", Placed { cents: 100, fails: 2 }).await.unwrap();
    orders.send("o-2", Placed { cents: 200, fails: 0 }).await.unwrap();
    orders.send("o-3", Placed { cents: 300, fails: 0 }).await.unwrap();
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(1)).await;
    orders.send("o-2", Paid { receipt: String::new() }).await.unwrap();
    orders.send("o-3", Paid { receipt: "r-3".into() }).await.unwrap();
    orders.send("o-3", Shipped).await.unwrap();
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(1)).await;
}

//! Limits, verbs that block a thread, and progress, as the product page has them. A verb with a limit is in `tests/promises/limits.rs`: here it
//! would make each program of this binary declare the limit.

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Compress;

#[verb(timeout = "30s")]
pub async fn charged(_event: Charge) -> Result {
    Ok(())
}

#[verb(blocking, heartbeat = "30s")]
pub fn compressed(ctx: &mut Ctx<'_>, _event: Compress) -> Result {
    ctx.progress(serde_json::json!({ "files": 3 }))?;
    assert!(!ctx.is_cancelled());
    Ok(())
}

fsm! { pub machine Shelf = "contract-shelf" {
    start charged;
    charged -> compressed;
    end compressed;
} }

async fn runs(builder: fsm::testing::TestBedBuilder, is_postgres: bool) {
    let builder = builder.only::<Shelf>().limit("stripe", Limit::concurrency(5).per_second(20));
    let bed = if is_postgres { builder.postgres().await } else { builder.sqlite().await };
    let shelves = bed.machine::<Shelf>();
    shelves.send("s", Charge).await.unwrap();
    shelves.send("s", Compress).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(shelves.get("s").await.unwrap().unwrap().status, Status::Completed);
}

#[tokio::test]
async fn limits_and_verbs_that_block_on_sqlite() {
    runs(TestBed::builder(), false).await;
}

#[tokio::test]
async fn limits_and_verbs_that_block_on_postgres() {
    runs(TestBed::builder(), true).await;
}

#[test]
fn the_builder_takes_limits() {
    let _ = Runtime::builder().limit("stripe", Limit::concurrency(5).per_second(20)).limit("mail", Limit::per_second(20).burst(2));
    let _ = Runtime::builder().limit("tenant", Limit::concurrency(2).by("tenant")).limit("export", Limit::per_second(20).by("tenant"));
    let _ = Runtime::builder().limit("slow", Limit::per_minute(6)).limit("slower", Limit::per_hour(6)).blocking_threads(8);
}

//! Time inside a verb, snoozes, waits, JSON, filters, shutdown handles and the test clock, by the contract.

use std::sync::Arc;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{Handle, Instance, ShutdownHandle};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub number: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Poll;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Times {
    pub ordered_us: i64,
    pub waited: Duration,
}

#[verb]
#[retry(3, "1s")]
async fn ordered(ctx: &mut Ctx<'_>, times: &mut Times, _event: Order) -> Result {
    let now: Timestamp = ctx.now();
    assert_eq!(ctx.entered_at(), None);
    times.ordered_us = now.as_micros();
    Ok(())
}

#[verb]
#[retry(3, "1s")]
async fn printed(ctx: &mut Ctx<'_>, times: &mut Times, _event: Poll) -> Result {
    if ctx.attempt() <= 2 {
        return Err(Failure::snooze(Duration::from_secs(600)));
    }
    let entered: Option<Timestamp> = ctx.entered_at();
    times.waited = ctx.now() - entered.unwrap();
    Ok(())
}

fsm! {
    pub machine Print = "contract-print" {
        keeps Times;
        start ordered;
        ordered -> printed;
        end printed;
    }
}

#[tokio::test]
async fn a_verb_has_the_time_and_snoozes() {
    let bed = TestBed::builder().only::<Print>().sqlite().await;
    let prints: Handle<Print> = bed.machine();
    prints.send("2026-1", Order { number: 1 }).await.unwrap();
    bed.run_until_idle().await;
    prints.send("2026-1", Poll).await.unwrap();
    bed.run_until_idle().await;
    let call = prints.get("2026-1").await.unwrap().unwrap().call.unwrap();
    assert_eq!((call.attempt, call.snoozes, call.retries_left, call.next_at - bed.now()), (2, 1, Some(3), Duration::from_secs(600)));
    bed.advance_to(call.next_at).await;
    bed.advance_to(bed.now() + Duration::from_secs(600)).await;
    let printed = prints.get("2026-1").await.unwrap().unwrap();
    assert_eq!((printed.state, printed.record.waited), (Some(PrintState::Printed), Duration::from_secs(1200)));
    assert_eq!(printed.entered_at, Some(bed.now()));
    assert_eq!(prints.attempts("2026-1").await.unwrap()[1].state, AttemptState::Snoozed);
}

#[tokio::test]
async fn an_instance_is_waited_for_sent_to_by_name_and_shown_as_json() {
    let bed = TestBed::builder().only::<Print>().sqlite().await;
    let prints = bed.machine::<Print>();
    prints.send_json("2026-1", "Order", json!({ "number": 1 })).dedup("o").await.unwrap();
    let ordered: Instance<Print> = prints.wait("2026-1").for_state(PrintState::Ordered).within(Duration::from_secs(60)).await.unwrap();
    assert!(ordered.timers.is_empty() && ordered.waiting.is_empty());
    prints.send("2026-1", Poll).await.unwrap();
    bed.advance(Duration::from_secs(3600)).await;
    let printed = prints.wait("2026-1").for_end().within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(serde_json::to_value(&printed).unwrap()["state"], "printed");
    assert!(serde_json::to_value(prints.history("2026-1").await.unwrap()).unwrap().is_array());
    assert!(serde_json::to_value(prints.attempts("2026-1").await.unwrap()).unwrap().is_array());
    assert!(prints.wait("2026-1").for_state(PrintState::Ordered).await.unwrap_err().is_refused());

    let page = prints.list(Filter::default().key_prefix("2026-").retrying(true)).await.unwrap();
    assert_eq!(page.items.len(), 0);
    assert_eq!(prints.list(Filter::default().key_prefix("2026-")).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_shutdown_handle_ends_a_runtime_beside_a_server() {
    let builder = Runtime::builder().database("sqlite::memory:").only::<Print>();
    let runtime = builder.start().await.unwrap();
    let handle: ShutdownHandle = runtime.shutdown_handle();
    let server = tokio::spawn(handle.requested());
    let running = tokio::spawn(runtime.run_until_signal());
    handle.clone().shutdown().await.unwrap();
    server.await.unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_crash_test_leaves_out_what_differs_for_good_reason() {
    let bed = TestBed::builder().only::<Print>().sqlite().await;
    let scenario = |bed: Arc<TestBed>| async move {
        bed.machine::<Print>().send("2026-1", Order { number: 1 }).dedup("o").await.unwrap();
        bed.run_until_idle().await;
    };
    let crashes = bed.crash_at_every_point(scenario).ignoring(|record| record["ordered_us"] = json!(0)).await;
    assert!(crashes.points > 5);
}

#[tokio::test]
async fn the_driver_is_re_exported() {
    use fsm::sqlx::Connection;
    let mut conn = fsm::sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let one: i64 = fsm::sqlx::query_scalar("select 1").fetch_one(&mut conn).await.unwrap();
    assert_eq!(one, 1);
}

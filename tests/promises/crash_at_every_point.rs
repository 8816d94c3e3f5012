//! `crash_at_every_point` itself: it passes a scenario that survives every crash, and it reports where and why another one does not.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use fsm::prelude::*;
use fsm::testing::{Effects, TestBed, TestBedBuilder};
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Purchase {
    cents: u64,
    charged_at_us: i64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    cents: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Ship;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mail;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Forget;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DateIt;

/// Charges with the idempotency key of the call, so that a repetition is harmless.
#[verb]
#[retry(3, "5s")]
async fn charged(ctx: &mut Ctx<'_>, record: &mut Purchase, world: Data<Effects>, event: Order) -> Result {
    world.keyed(ctx.idempotency_key(), format!("charge {}", event.cents)).await;
    record.cents = event.cents;
    Ok(())
}

#[verb]
#[retry(3, "5s")]
async fn shipped(ctx: &mut Ctx<'_>, world: Data<Effects>, _event: Ship) -> Result {
    let label: String = ctx.once("label", async { Ok::<_, Failure>("label 7".to_owned()) }).await?;
    world.keyed(ctx.idempotency_key(), format!("ship with {label}")).await;
    Ok(())
}

/// Sends a mail without an idempotency key, so that a repetition is a second mail.
#[verb]
#[retry(3, "5s")]
async fn mailed(world: Data<Effects>, _event: Mail) -> Result {
    world.unkeyed("mail to ada").await;
    Ok(())
}

/// Keeps the time of its attempt.
#[verb]
#[retry(3, "5s")]
async fn dated(ctx: &mut Ctx<'_>, record: &mut Purchase, _event: DateIt) -> Result {
    record.charged_at_us = ctx.now().as_micros();
    Ok(())
}

/// Has no retry policy: if its process dies, an operator decides.
#[verb]
async fn forgotten(_event: Forget) -> Result {
    Ok(())
}

fsm! {
    machine Sale = "sale" {
        keeps Purchase;
        start charged;
        charged -> shipped | mailed | forgotten | dated;
        charged after "10s" -> lapsed;
        end shipped, mailed, forgotten, dated, lapsed;
    }
}

#[verb]
#[retry(3, "5s")]
async fn lapsed(_timeout: Timeout) -> Result {
    Ok(())
}

fn sales() -> TestBedBuilder {
    TestBed::builder().only::<Sale>().data(Effects::default())
}

/// Runs an order and the event that follows it. Running it again changes nothing.
async fn sell<E: fsm::EventFor<Sale>>(bed: &TestBed, then: E) -> Option<SaleState> {
    let sales = bed.machine::<Sale>();
    sales.send("s-1", Order { cents: 12_00 }).dedup("order").await.unwrap();
    sales.send("s-1", then).dedup("then").await.unwrap();
    bed.run_until_idle().await;
    sales.get("s-1").await.unwrap().unwrap().state
}

macro_rules! on_both {
    ($($(#[doc = $doc:literal])* async fn $name:ident($bed:ident) $body:block)*) => { $(
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            async fn check($bed: &TestBed) $body

            #[cfg(feature = "sqlite")]
            #[tokio::test]
            async fn sqlite() {
                check(&sales().sqlite().await).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test]
            async fn postgres() {
                check(&sales().postgres().await).await;
            }
        }
    )* };
}

/// Returns the error text of a scenario that does not survive.
async fn reported_difference<T>(crashing: impl IntoFuture<Output = T>) -> String {
    let panic: Box<dyn Any + Send> =
        AssertUnwindSafe(crashing.into_future()).catch_unwind().await.err().expect("the kit reports the difference");
    let text = panic.downcast_ref::<String>().expect("with a text").clone();
    println!("{text}");
    text
}

on_both! {
    async fn a_scenario_that_survives_a_crash_at_every_point_counts_them(bed) {
        let crashes = bed.crash_at_every_point(|bed| async move { sell(&bed, Ship).await }).await;
        println!("{crashes}");
        assert!(crashes.points > 30, "two sends, two transitions and two effects take more than {} crash points", crashes.points);
    }

    async fn an_effect_without_a_key_is_found_to_happen_twice(bed) {
        let text = reported_difference(bed.crash_at_every_point(|bed| async move { sell(&bed, Mail).await })).await;
        assert!(text.starts_with("the process died after the effect `mail to ada` (crash point "), "{text}");
        assert!(text.ends_with("the result differs:\n  the effect `mail to ada` happened 2 times; without a crash once"), "{text}");
    }

    async fn a_verb_without_a_retry_policy_is_found_to_need_an_operator(bed) {
        let text = reported_difference(bed.crash_at_every_point(|bed| async move { sell(&bed, Forget).await })).await;
        assert!(text.contains("`sale` `s-1` is error in `charged` after 1 transitions (attempt 1 was lost: its worker is gone)"), "{text}");
        assert!(text.contains("; without a crash it is completed in `forgotten` after 2 transitions"), "{text}");
    }

    async fn a_send_without_a_dedup_id_is_found_when_the_caller_repeats_it(bed) {
        let scenario = |bed: Arc<TestBed>| async move {
            bed.machine::<Sale>().send("s-1", Order { cents: 1 }).await.unwrap();
            bed.run_until_idle().await;
        };
        let text = reported_difference(bed.crash_at_every_point(scenario)).await;
        assert!(text.contains("never heard of it (crash point"), "{text}");
        assert!(text.contains("the scenario panicked when it ran again after the crash"), "{text}");
        assert!(text.contains("do its sends have dedup ids?"), "{text}");
    }

    async fn a_field_that_may_differ_after_a_death_is_left_out(bed) {
        let scenario = |bed: Arc<TestBed>| async move { sell(&bed, DateIt).await };
        let text = reported_difference(bed.crash_at_every_point(scenario)).await;
        assert!(text.contains("charged_at_us"), "{text}");
        let crashes = bed.crash_at_every_point(scenario).ignoring(|record| record["charged_at_us"] = serde_json::Value::Null).await;
        assert!(crashes.points > 10, "{crashes}");
    }

    async fn an_answer_that_differs_is_found(bed) {
        let said = std::cell::Cell::new(0);
        let scenario = |bed: Arc<TestBed>| {
            said.set(said.get() + 1);
            let times = said.get();
            async move {
                sell(&bed, Ship).await;
                times
            }
        };
        let text = reported_difference(bed.crash_at_every_point(scenario)).await;
        assert!(text.contains("the scenario gave 3; without a crash 1"), "{text}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_database_that_cannot_be_made_anew_is_named() {
    let folder = crate::support::Folder::new("crashes");
    let bed = sales().on(&folder.url("sales.db")).await;
    let text = reported_difference(bed.crash_at_every_point(|_| async {})).await;
    assert!(text.contains("sales.db` cannot be created afresh: take `.sqlite()` or `.postgres()`"), "{text}");
}

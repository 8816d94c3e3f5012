//! An event that a verb sends is never lost for lack of room: the sender's attempt fails and is retried until the receiver takes it.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::meddler::{Meddler, is_postgres, run};
use crate::support::promise;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// The parcels that have reported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Arrivals {
    parcels: Vec<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arrived {
    parcel: String,
}
/// A parcel reports to its order so often, after SQL of its own if it is told which database it is on.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Deliver {
    reports: u32,
    own_sql: Option<bool>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DeliverOnce;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Lose;

#[verb]
async fn placed(_event: Place) -> Result {
    Ok(())
}
#[verb]
async fn arriving(record: &mut Arrivals, event: Arrived) -> Result {
    record.parcels.push(event.parcel);
    Ok(())
}

fn report(ctx: &mut Ctx<'_>) -> Result {
    let parcel = ctx.key().to_owned();
    Ok(ctx.send::<Order>("o-1", Arrived { parcel })?)
}

#[verb]
#[retry("5s")]
async fn delivered(ctx: &mut Ctx<'_>, event: Deliver) -> Result {
    let text = "insert into ledger values (1)";
    match event.own_sql {
        Some(true) => sqlx::query(text).execute(ctx.postgres().await?).await.map(drop)?,
        Some(false) => sqlx::query(text).execute(ctx.sqlite().await?).await.map(drop)?,
        None => {}
    }
    (0..event.reports).try_for_each(|_| report(ctx))
}
#[verb]
#[retry(none)]
async fn handed_over(ctx: &mut Ctx<'_>, _event: DeliverOnce) -> Result {
    report(ctx)
}
#[verb]
#[retry(none)]
async fn lost(_event: Lose) -> Result {
    Err(Failure::new("nobody knows where it is"))
}

fsm! {
    machine Order = "room-order" {
        keeps Arrivals;
        start placed;
        any(placed, arriving) -> arriving;
    }
}
fsm! {
    machine Parcel = "room-parcel" {
        start delivered | handed_over | lost;
        end delivered, handed_over, lost;
    }
}

#[verb]
#[retry(1, "5s")]
async fn reported_lost(ctx: &mut Ctx<'_>, _caught: Caught<Search>) -> Result {
    report(ctx)
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Search;
#[verb]
#[retry(max_attempts = 1, min = "5s", catch = reported_lost)]
async fn searched(_event: Search) -> Result {
    Err(Failure::new("it is not here"))
}
fsm! {
    machine Hunt = "room-hunt" {
        start searched;
        end searched;
    }
}

fn orders() -> TestBedBuilder {
    TestBed::builder().only::<Order>().only::<Parcel>().only::<Hunt>().only::<Meddler>().with(|builder| builder.inbox_limit(2))
}

/// An order that takes nothing until it is resumed, and so many events fewer than it has room for.
async fn held_order(bed: &TestBed, room: u32) -> fsm::Handle<Order> {
    let orders = bed.machine::<Order>();
    orders.send("o-1", Place).await.unwrap();
    bed.run_until_idle().await;
    orders.pause("o-1").await.unwrap();
    // The first is the call that is held, and two more may wait.
    for n in 0..3 - room {
        orders.send("o-1", Arrived { parcel: format!("early-{n}") }).await.unwrap();
    }
    orders
}

const FULL: &str = "an event that the verb sent was not taken: `room-order` `o-1` is busy: its inbox is full with 2 events";

promise! {
    async fn a_full_inbox_fails_the_attempt_that_sends_to_it_and_the_event_comes_later(bed in orders()) {
        let orders = held_order(bed, 0).await;
        let parcels = bed.machine::<Parcel>();
        for n in 0..5 {
            parcels.send(format!("p-{n}"), Deliver { reports: 1, own_sql: None }).await.unwrap();
        }
        bed.run_until_idle().await;
        for n in 0..5 {
            let parcel = parcels.get(format!("p-{n}")).await.unwrap().unwrap();
            let call = parcel.call.expect("it is retried by its policy");
            assert_eq!((parcel.version, call.attempt, call.next_at - bed.now()), (0, 2, FIVE_SECONDS));
            assert_eq!(call.last_error.as_deref(), Some(FULL));
        }
        orders.resume("o-1").await.unwrap();
        bed.advance(4 * FIVE_SECONDS).await;
        let mut parcels = orders.get("o-1").await.unwrap().unwrap().record.parcels;
        parcels.sort();
        assert_eq!(parcels, ["early-0", "early-1", "early-2", "p-0", "p-1", "p-2", "p-3", "p-4"]);
    }
}

promise! {
    async fn two_events_of_one_verb_are_sent_both_or_neither(bed in orders()) {
        let orders = held_order(bed, 1).await;
        let parcels = bed.machine::<Parcel>();
        parcels.send("p", Deliver { reports: 2, own_sql: None }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((parcels.get("p").await.unwrap().unwrap().version, orders.get("o-1").await.unwrap().unwrap().inbox_len), (0, 1));
        orders.resume("o-1").await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        assert_eq!(parcels.get("p").await.unwrap().unwrap().version, 1);
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().record.parcels, ["early-0", "early-1", "p", "p"]);
    }
}

promise! {
    async fn a_verb_without_retries_that_sends_to_a_full_inbox_is_in_error_and_says_whose_it_is(bed in orders()) {
        let orders = held_order(bed, 0).await;
        let parcels = bed.machine::<Parcel>();
        parcels.send("p", DeliverOnce).await.unwrap();
        bed.run_until_idle().await;
        let parcel = parcels.get("p").await.unwrap().unwrap();
        assert_eq!((parcel.status, parcel.version, parcel.error.as_deref()), (Status::Error, 0, Some(FULL)));
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        parcels.retry("p").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().record.parcels.last().map(String::as_str), Some("p"));
    }
}

promise! {
    async fn a_catch_verb_that_sends_to_a_full_inbox_is_retried(bed in orders()) {
        let orders = held_order(bed, 0).await;
        let hunts = bed.machine::<Hunt>();
        hunts.send("h", Search).await.unwrap();
        bed.run_until_idle().await;
        let call = hunts.get("h").await.unwrap().unwrap().call.expect("the catch verb is retried");
        assert_eq!((call.verb.as_str(), call.attempt, call.last_error.as_deref()), ("reported_lost", 2, Some(FULL)));
        orders.resume("o-1").await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().record.parcels.last().map(String::as_str), Some("h"));
        assert_eq!(hunts.get("h").await.unwrap().unwrap().error.as_deref(), Some("it is not here"));
    }
}

promise! {
    async fn what_a_verb_wrote_is_undone_when_an_event_that_it_sends_finds_no_room(bed in orders()) {
        run(bed, "create table ledger (entry bigint)").await;
        let orders = held_order(bed, 0).await;
        let parcels = bed.machine::<Parcel>();
        parcels.send("p", Deliver { reports: 1, own_sql: Some(is_postgres(bed)) }).await.unwrap();
        bed.run_until_idle().await;
        let call = parcels.get("p").await.unwrap().unwrap().call.expect("it is retried by its policy");
        assert!(call.last_error.as_deref().is_some_and(|error| error.ends_with(FULL)), "{:?}", call.last_error);
        assert_eq!((call.attempt, run(bed, "select count(*) from ledger").await), (2, Some(0)));
        orders.resume("o-1").await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        assert_eq!((parcels.get("p").await.unwrap().unwrap().version, run(bed, "select count(*) from ledger").await), (1, Some(1)));
    }
}

promise! {
    async fn a_delayed_event_that_was_accepted_is_delivered_to_a_full_inbox(bed in orders()) {
        let orders = held_order(bed, 0).await;
        orders.send("o-1", Arrived { parcel: "delayed".into() }).after(FIVE_SECONDS).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().inbox_len, 3);
        assert!(orders.send("o-1", Arrived { parcel: "late".into() }).await.unwrap_err().is_busy());
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().record.parcels.last().map(String::as_str), Some("delayed"));
    }
}

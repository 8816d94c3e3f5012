//! Exhausted calls: the catch verb, and the operations that are allowed then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::support::promise;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Book {
    seat: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reserve;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct GiveUp {
    why: String,
}

/// The record of a trip.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TripRecord {
    caught: Vec<String>,
}

/// The switches of the test: the airline answers, the catch verb requests a next event, the catch verb fails.
#[derive(Default)]
struct World {
    airline_answers: AtomicBool,
    leads_on: AtomicBool,
    catch_fails: AtomicBool,
}

#[verb]
async fn booked(_event: Book) -> Result {
    Ok(())
}

#[verb]
#[retry(2, "5s", catch = recover)]
async fn reserved(world: Data<Arc<World>>, _event: Reserve) -> Result {
    if world.airline_answers.load(Ordering::SeqCst) { Ok(()) } else { Err(Failure::new("the airline does not answer")) }
}

#[verb]
#[retry(1, "1s")]
async fn recover(ctx: &mut Ctx<'_>, record: &mut TripRecord, world: Data<Arc<World>>, caught: Caught<Reserve>) -> Result {
    if world.catch_fails.load(Ordering::SeqCst) {
        return Err(Failure::new("recovery failed as well"));
    }
    record.caught.push(format!("{} after {} attempts", caught.error, caught.attempts));
    if world.leads_on.load(Ordering::SeqCst) {
        ctx.next(GiveUp { why: caught.error })?;
    }
    Ok(())
}

#[verb]
async fn abandoned(event: GiveUp) -> Result {
    assert!(!event.why.is_empty());
    Ok(())
}

fsm! {
    /// A trip whose reservation has a catch verb.
    machine Trip = "trip" {
        keeps TripRecord;
        start booked;
        booked -> reserved | abandoned;
        end reserved, abandoned;
    }
}

fn trips(world: &Arc<World>) -> TestBedBuilder {
    TestBed::builder().only::<Trip>().data(Arc::clone(world))
}

fn world(leads_on: bool, catch_fails: bool) -> Arc<World> {
    Arc::new(World { leads_on: leads_on.into(), catch_fails: catch_fails.into(), ..World::default() })
}

async fn exhaust(bed: &TestBed) -> fsm::Handle<Trip> {
    let trips = bed.machine::<Trip>();
    trips.send("t-1", Book { seat: 7 }).await.unwrap();
    trips.send("t-1", Reserve).await.unwrap();
    bed.advance(Duration::from_secs(60)).await;
    trips
}

async fn timeline(trips: &fsm::Handle<Trip>) -> Vec<(String, u32, AttemptState)> {
    let attempts = trips.attempts("t-1").await.unwrap();
    attempts.into_iter().map(|attempt| (attempt.verb, attempt.number, attempt.state)).collect()
}

promise! {
    async fn a_catch_verb_runs_at_once_after_exhaustion_and_may_lead_the_instance_on(bed in trips(&world(true, false))) {
        let trips = exhaust(bed).await;
        let trip = trips.get("t-1").await.unwrap().unwrap();
        assert_eq!((trip.state, trip.status, trip.error, trip.version), (Some(TripState::Abandoned), Status::Completed, None, 2));
        assert_eq!(trip.record.caught, ["the airline does not answer after 3 attempts"]);
        let attempts = trips.attempts("t-1").await.unwrap();
        let (last, catch) = (&attempts[3], &attempts[4]);
        assert_eq!((last.number, last.finished_at), (3, catch.started_at), "it runs at once");
        assert_eq!((catch.verb.as_str(), catch.event.as_str()), ("recover", "Caught<Reserve>"));
    }
}

promise! {
    async fn a_catch_verb_that_does_not_lead_on_leaves_the_instance_in_error_where_it_was(bed in trips(&world(false, false))) {
        let trips = exhaust(bed).await;
        let trip = trips.get("t-1").await.unwrap().unwrap();
        assert_eq!((trip.state, trip.status, trip.version), (Some(TripState::Booked), Status::Error, 1));
        assert_eq!(trip.error.as_deref(), Some("the airline does not answer"));
        assert_eq!(trip.record.caught.len(), 1, "the record of the catch verb is stored");
    }
}

promise! {
    async fn the_error_of_a_failing_catch_verb_never_overwrites_the_original_one(bed in trips(&world(false, true))) {
        let trips = exhaust(bed).await;
        let trip = trips.get("t-1").await.unwrap().unwrap();
        assert_eq!((trip.status, trip.error.as_deref()), (Status::Error, Some("the airline does not answer")));
        let timeline = timeline(&trips).await;
        let catch: Vec<_> = timeline.iter().filter(|(verb, ..)| verb == "recover").map(|(_, number, state)| (*number, *state)).collect();
        assert_eq!(catch, [(1, AttemptState::Error), (2, AttemptState::Error)], "it is retried by its own policy");
    }
}

mod a_retry_by_hand_after_a_catch_runs_the_caught_call_again_under_the_same_idempotency_key {
    use super::*;

    async fn check(bed: TestBed, world: Arc<World>) {
        let trips = exhaust(&bed).await;
        for _ in 0..2 {
            trips.retry("t-1").reason("once more").await.unwrap();
            bed.advance(Duration::from_secs(60)).await;
            assert_eq!(trips.get("t-1").await.unwrap().unwrap().status, Status::Error);
        }
        world.airline_answers.store(true, Ordering::SeqCst);
        trips.retry("t-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(trips.get("t-1").await.unwrap().unwrap().state, Some(TripState::Reserved));
        let (e, s) = (AttemptState::Error, AttemptState::Success);
        let expected = [
            ("booked", 1, s),
            ("reserved", 1, e),
            ("reserved", 2, e),
            ("reserved", 3, e),
            ("recover", 1, s),
            ("reserved", 4, e),
            ("reserved", 5, e),
            ("reserved", 6, e),
            ("recover", 1, s),
            ("reserved", 7, e),
            ("reserved", 8, e),
            ("reserved", 9, e),
            ("recover", 1, s),
            ("reserved", 10, s),
        ];
        assert_eq!(timeline(&trips).await, expected.map(|(verb, number, state)| (verb.to_owned(), number, state)));
        let attempts = trips.attempts("t-1").await.unwrap();
        let calls: std::collections::HashSet<_> = attempts.iter().filter(|a| a.verb == "reserved").map(|a| a.call).collect();
        assert_eq!(calls.len(), 1, "one call, so one idempotency key");
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let world = world(false, false);
        check(trips(&world).sqlite().await, world).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let world = world(false, false);
        check(trips(&world).postgres().await, world).await;
    }
}

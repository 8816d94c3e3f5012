//! The inbox of a busy instance: events that are refused, rejected or held, and the order in which they are taken.

use std::time::Duration;

use fsm::SendOutcome;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};

use crate::support::promise;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hang;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    failures: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Air;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Lock;

#[verb]
async fn shut(_event: Hang) -> Result {
    Ok(())
}
#[verb]
#[retry(1, "10m", catch = jammed)]
async fn opened(ctx: &mut Ctx<'_>, event: Open) -> Result {
    if ctx.attempt() <= event.failures { Err(Failure::new("it sticks")) } else { Ok(()) }
}
#[verb]
#[retry("1m")]
async fn jammed(ctx: &mut Ctx<'_>, _caught: Caught<Open>) -> Result {
    if ctx.attempt() == 1 { Err(Failure::new("no oil")) } else { Ok(()) }
}
#[verb]
async fn aired(ctx: &mut Ctx<'_>, _event: Air) -> Result {
    let tomorrow = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000 + 24 * 3600);
    ctx.send::<Door>(format!("{}-next", ctx.key()), Hang)?.at(tomorrow);
    Ok(())
}
#[verb]
async fn locked(_event: Lock) -> Result {
    Ok(())
}
#[verb]
async fn forgotten(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Door = "door" {
        start shut;
        shut -> opened | locked;
        shut after "5m" -> forgotten;
        opened -> aired;
        aired -> locked;
        end locked, forgotten;
    }
}

fn doors() -> TestBedBuilder {
    TestBed::builder().only::<Door>()
}

/// A door that is being opened; the verb fails `failures` times.
async fn door_with_failing_open(bed: &TestBed, failures: u32) -> fsm::Handle<Door> {
    let doors = bed.machine::<Door>();
    doors.send("d", Hang).await.unwrap();
    bed.run_until_idle().await;
    doors.send("d", Open { failures }).await.unwrap();
    bed.run_until_idle().await;
    doors
}

/// Returns the history of the door as texts.
async fn history_lines(doors: &fsm::Handle<Door>) -> Vec<String> {
    doors.history("d").await.unwrap().iter().map(ToString::to_string).collect()
}

promise! {
    async fn a_waiting_event_that_no_longer_fits_is_recorded_and_the_next_one_is_taken(bed in doors()) {
        let doors = door_with_failing_open(bed, 1).await;
        assert_eq!(doors.send("d", Air).await.unwrap().outcome, SendOutcome::Queued);
        assert_eq!(doors.send("d", Lock).await.unwrap().outcome, SendOutcome::Queued);
        doors.skip("d").await.unwrap();
        bed.run_until_idle().await;
        let door = doors.get("d").await.unwrap().unwrap();
        assert_eq!((door.state, door.version, door.inbox_len), (Some(DoorState::Locked), 2, 0));
        let history = history_lines(&doors).await;
        let rejected = "rejected: `door` `d` is in `shut` and takes `Open` or `Lock`, not `Air`";
        assert_eq!(history.iter().filter(|line| line.ends_with(rejected)).count(), 1, "{history:#?}");
    }
}

promise! {
    async fn a_sender_that_would_not_wait_is_told_that_the_instance_is_busy_and_with_what(bed in doors()) {
        let doors = door_with_failing_open(bed, 1).await;
        let busy = doors.send("d", Air).reject_if_busy().await.unwrap_err();
        assert!(busy.is_busy() && !busy.is_refused(), "{busy}");
        assert_eq!(busy.to_string(), "`door` `d` is busy: attempt 2 of `opened` is scheduled");
        let unfit = doors.send("d", Lock).await.unwrap_err();
        assert!(unfit.is_refused(), "{unfit}");
        assert_eq!(unfit.to_string(), "`door` `d` will be in `opened` and takes `Air`, not `Lock`");
        assert_eq!(doors.get("d").await.unwrap().unwrap().inbox_len, 0);
    }
}

promise! {
    /// A caught call may still be skipped or run again, so an event that fits either result waits.
    async fn while_a_call_is_caught_what_fits_the_state_that_is_kept_waits_too(bed in doors()) {
        let doors = door_with_failing_open(bed, 2).await;
        bed.advance(10 * MINUTE).await;
        assert_eq!(doors.get("d").await.unwrap().unwrap().call.unwrap().verb, "jammed");
        assert_eq!(doors.send("d", Lock).await.unwrap().outcome, SendOutcome::Queued, "it fits `shut`");
        assert!(doors.send("d", Hang).await.unwrap_err().is_refused());
        bed.advance(MINUTE).await;
        let door = doors.get("d").await.unwrap().unwrap();
        assert_eq!((door.status, door.state, door.inbox_len), (Status::Error, Some(DoorState::Shut), 1));
        doors.skip("d").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(doors.get("d").await.unwrap().unwrap().state, Some(DoorState::Locked));
    }
}

promise! {
    async fn an_open_transition_holds_the_timer_of_its_state_back_until_it_ends(bed in doors()) {
        let doors = door_with_failing_open(bed, 1).await;
        bed.advance(9 * MINUTE).await;
        assert_eq!(doors.get("d").await.unwrap().unwrap().state, Some(DoorState::Shut), "its five minutes are over");
        bed.restart().await;
        bed.advance(MINUTE).await;
        assert_eq!(doors.get("d").await.unwrap().unwrap().state, Some(DoorState::Opened));
        bed.advance(60 * MINUTE).await;
        assert_eq!(doors.get("d").await.unwrap().unwrap().version, 2, "the timer was deleted with its state");
    }
}

promise! {
    async fn an_event_that_a_verb_sends_at_a_time_is_delivered_then(bed in doors()) {
        let doors = door_with_failing_open(bed, 0).await;
        doors.send("d", Air).await.unwrap();
        bed.advance(24 * 60 * MINUTE - Duration::from_secs(1)).await;
        assert_eq!(doors.get("d-next").await.unwrap().unwrap().state, None);
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(doors.get("d-next").await.unwrap().unwrap().state, Some(DoorState::Shut));
    }
}

promise! {
    /// The request id is stored although the operation changed nothing, so that a later repetition has no effect either.
    async fn an_act_that_had_no_effect_is_not_carried_out_later_under_its_request_id(bed in doors()) {
        let doors = door_with_failing_open(bed, 1).await;
        doors.pause("d").request_id("p-1").await.unwrap();
        doors.pause("d").request_id("p-2").await.unwrap();
        doors.resume("d").await.unwrap();
        doors.pause("d").request_id("p-2").await.unwrap();
        assert!(!doors.get("d").await.unwrap().unwrap().paused);
        assert!(doors.skip("d").request_id("p-2").await.unwrap_err().is_conflict());
        assert_eq!(history_lines(&doors).await.iter().filter(|line| line.contains("paused")).count(), 1);
    }
}

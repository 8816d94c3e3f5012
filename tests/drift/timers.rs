//! Timers across a deploy: one is added, one becomes longer, and one is removed.

use std::time::Duration;

use fsm::Status;
use fsm::testing::TestBed;

use crate::sql_runner::{SqlRunner, run};
use crate::support::promise;
use crate::{FIVE_SECONDS, LABEL, old, old_code, refuse, refuse_no_more};

const TEN_MINUTES: Duration = Duration::from_secs(600);

promise! {
    async fn a_timer_that_a_deploy_adds_begins_for_those_who_rest_in_its_state_already(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        for key in ["rests", "labelled"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
        }
        of_old.send("busy", old::Pack { failures: 0 }).await.unwrap();
        old.run_until_idle().await;
        of_old.send("labelled", LABEL).await.unwrap();
        of_old.send("busy", old::Label { failures: 1 }).await.unwrap();
        old.run_until_idle().await;
        old.outage(TEN_MINUTES).await;

        let timed = TestBed::builder().only::<old::timed::Parcel>().beside(old).await.unwrap();
        let of_timed = timed.machine::<old::timed::Parcel>();
        let state = async |key: &str| of_timed.get(key).await.unwrap().unwrap().state.unwrap();
        use old::timed::ParcelState::{Forgotten, Labelled, Packed, Returned};
        timed.advance(TEN_MINUTES).await;
        of_old.send("later", old::Pack { failures: 0 }).await.unwrap();
        old.run_until_idle().await;
        timed.advance(TEN_MINUTES - FIVE_SECONDS).await;
        assert_eq!((state("rests").await, state("labelled").await, state("busy").await), (Packed, Labelled, Labelled));
        old.outage(FIVE_SECONDS).await;
        old.run_until_idle().await;
        assert_eq!(state("rests").await, Packed, "old code neither fires nor deletes a timer that it does not have");
        timed.run_until_idle().await;
        assert_eq!(state("rests").await, Forgotten, "half an hour after the state was entered");
        timed.advance(2 * TEN_MINUTES - FIVE_SECONDS).await;
        assert_eq!(state("later").await, Packed);
        timed.advance(FIVE_SECONDS).await;
        assert_eq!(state("later").await, Forgotten, "entered by old code while the new one ran");

        // A timer that is already set keeps its time when its declaration changes.
        assert_eq!(state("labelled").await, Labelled);
        timed.advance(TEN_MINUTES).await;
        assert_eq!(state("labelled").await, Returned);
    }
}

promise! {
    async fn a_timer_that_a_deploy_removes_runs_out_no_more(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        of_old.send("p", old::Pack { failures: 0 }).await.unwrap();
        of_old.send("p", LABEL).await.unwrap();
        of_old.send("q", old::Pack { failures: 0 }).await.unwrap();
        of_old.send("q", LABEL).await.unwrap();
        old.run_until_idle().await;
        old.outage(FIVE_SECONDS).await;
        let timeless = TestBed::builder().only::<old::timeless::Parcel>().beside(old).await.unwrap();
        let of_timeless = timeless.machine::<old::timeless::Parcel>();
        of_timeless.send("q", old::Ship).await.unwrap();
        timeless.advance(Duration::from_secs(7200)).await;
        assert_eq!(of_timeless.get("q").await.unwrap().unwrap().status, Status::Completed);
        old.run_until_idle().await;
        let parcel = of_old.get("p").await.unwrap().unwrap();
        assert_eq!((parcel.state, parcel.version), (Some(old::ParcelState::Labelled), 2), "its timer was deleted when it was due");
        // A process whose definition is not the newest deletes no timers.
        old.outage(FIVE_SECONDS).await;
        let timed = TestBed::builder().only::<old::timed::Parcel>().beside(old).await.unwrap();
        let of_timed = timed.machine::<old::timed::Parcel>();
        timed.run_until_idle().await;
        assert_eq!(of_timed.get("p").await.unwrap().unwrap().status, Status::Completed, "it is two hours since it was entered");
        of_timed.send("r", old::Pack { failures: 0 }).await.unwrap();
        timed.run_until_idle().await;
        timeless.advance(Duration::from_secs(3600)).await;
        timed.run_until_idle().await;
        assert_eq!(of_timed.get("r").await.unwrap().unwrap().state, Some(old::timed::ParcelState::Forgotten));
    }
}

promise! {
    async fn a_timer_that_cannot_be_dropped_keeps_no_other_from_it(old in old_code().only::<SqlRunner>()) {
        let of_old = old.machine::<old::Parcel>();
        for n in 0..130 {
            of_old.send(format!("p-{n}"), old::Pack { failures: 0 }).await.unwrap();
            of_old.send(format!("p-{n}"), LABEL).await.unwrap();
        }
        old.run_until_idle().await;
        let left = async || {
            // The lease of the old process ends while the clock moves with the new one.
            old.restart().await;
            run(old, "select count(*) from fsm_timers").await
        };
        assert_eq!(left().await, Some(130));
        old.outage(FIVE_SECONDS).await;
        refuse(old, "delete on fsm_timers", "(select key from fsm_instances i where i.instance_id = old.instance_id) = 'p-7'").await;
        let timeless = TestBed::builder().only::<old::timeless::Parcel>().beside(old).await.unwrap();
        timeless.advance(Duration::from_secs(7200)).await;
        assert_eq!(left().await, Some(1), "all but one are dropped, also those behind it");
        refuse_no_more(old, "fsm_timers").await;
        timeless.advance(Duration::from_secs(120)).await;
        assert_eq!(left().await, Some(0), "it is tried again");
    }
}

//! Code and database drift apart: what live rows need stops a start that lacks it, a mapping gives it other names, and old
//! and new processes work side by side. A program of its own, for it has two machines of one name.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "promises/support.rs"]
mod support;

use std::time::Duration;

use fsm::testing::{Bed, BedBuilder};
use fsm::{AttemptState, Fate, Migrate, Status};
use support::promise;

/// The code as it was.
mod old {
    use fsm::prelude::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Pack {
        pub failures: u32,
    }
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Label {
        pub failures: u32,
    }
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Ship;

    pub fn failing(ctx: &Ctx<'_>, failures: u32) -> Result {
        if ctx.attempt() <= failures { Err(Failure::new("not yet")) } else { Ok(()) }
    }

    #[verb]
    #[retry("5s", catch = mislabelled)]
    async fn packed(ctx: &mut Ctx<'_>, event: Pack) -> Result {
        failing(ctx, event.failures)
    }
    #[verb]
    #[retry(2, "5s")]
    async fn labelled(ctx: &mut Ctx<'_>, event: Label) -> Result {
        failing(ctx, event.failures)
    }
    #[verb]
    async fn shipped(_event: Ship) -> Result {
        Ok(())
    }
    #[verb]
    async fn returned(timeout: Timeout) -> Result {
        assert_eq!(timeout.state, "labelled");
        Ok(())
    }
    #[verb]
    async fn mislabelled(_caught: Caught<Pack>) -> Result {
        Ok(())
    }

    #[verb]
    async fn forgotten(_timeout: Timeout) -> Result {
        Ok(())
    }

    /// The same code with a timer more, and another one that is longer.
    pub mod timed {
        use super::{forgotten, labelled, packed, returned, shipped};

        fsm::fsm! {
            pub machine Parcel = "parcel" {
                start packed;
                packed -> labelled;
                packed after "30m" -> forgotten;
                labelled -> shipped;
                labelled after "2h" -> returned;
                end shipped, returned, forgotten;
            }
        }
    }

    /// The same code without timers.
    pub mod timeless {
        use super::{labelled, packed, shipped};

        fsm::fsm! {
            pub machine Parcel = "parcel" {
                start packed;
                packed -> labelled;
                labelled -> shipped;
                end shipped;
            }
        }
    }

    fsm! {
        pub machine Parcel = "parcel" {
            start packed;
            packed -> labelled;
            labelled -> shipped;
            labelled after "1h" -> returned;
            end shipped, returned;
        }
    }
}

/// The code as it is: what was `labelled` is `addressed`, and so are the events.
mod new {
    use super::old::failing;
    use fsm::prelude::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Pack {
        pub failures: u32,
    }
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Address {
        pub failures: u32,
    }
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct Ship;

    #[verb]
    #[retry("5s", catch = lost_label)]
    async fn packed(ctx: &mut Ctx<'_>, event: Pack) -> Result {
        failing(ctx, event.failures)
    }
    #[verb]
    #[retry(2, "5s")]
    async fn addressed(ctx: &mut Ctx<'_>, event: Address) -> Result {
        failing(ctx, event.failures)
    }
    #[verb]
    async fn shipped(_event: Ship) -> Result {
        Ok(())
    }
    #[verb]
    async fn returned(timeout: Timeout) -> Result {
        assert_eq!(timeout.state, "addressed");
        Ok(())
    }
    #[verb]
    async fn lost_label(_caught: Caught<Pack>) -> Result {
        Ok(())
    }

    fsm! {
        pub machine Parcel = "parcel" {
            start packed;
            packed -> addressed;
            addressed -> shipped;
            addressed after "1h" -> returned;
            end shipped, returned;
        }
    }
}

fn old_code() -> BedBuilder {
    Bed::builder().only::<old::Parcel>()
}

fn new_code() -> BedBuilder {
    Bed::builder().only::<new::Parcel>()
}

fn mapping() -> Migrate {
    Migrate::machine("parcel")
        .state("labelled", "addressed")
        .verb("labelled", "addressed")
        .verb("mislabelled", "lost_label")
        .event("Label", "Address")
}

const LABEL: old::Label = old::Label { failures: 0 };

/// Parcels of the old code, in all the ways in which its names are needed: two rest in `labelled`, one is in a retry of it,
/// one is in error, one has it in its inbox, and one gets it in a minute. One has ended.
async fn parcels_of_the_old_code(bed: &Bed) {
    let parcels = bed.machine::<old::Parcel>();
    for key in ["rests", "ships", "retried", "in-error", "delayed", "ended"] {
        parcels.send(key, old::Pack { failures: 0 }).await.unwrap();
    }
    bed.settle().await;
    for key in ["rests", "ships", "ended"] {
        parcels.send(key, LABEL).await.unwrap();
    }
    parcels.send("in-error", old::Label { failures: 3 }).await.unwrap();
    bed.advance(Duration::from_secs(20)).await;
    parcels.send("ended", old::Ship).await.unwrap();
    parcels.send("retried", old::Label { failures: 1 }).await.unwrap();
    parcels.send("waits", old::Pack { failures: 1 }).await.unwrap();
    bed.settle().await;
    assert_eq!(parcels.send("waits", LABEL).await.unwrap().fate, Fate::Queued);
    parcels.send("delayed", LABEL).after(Duration::from_secs(60)).await.unwrap();
}

promise! {
    async fn what_live_rows_need_and_the_code_lacks_stops_the_start_with_an_exact_list(bed in old_code()) {
        parcels_of_the_old_code(bed).await;
        let drift = new_code().beside(bed).await.err().unwrap();
        assert!(drift.is_drift());
        assert_eq!(
            drift.to_string(),
            "the code lacks what rows in the database need; bring it back, or say what takes its place: \
             `.migrate(Migrate::machine(…).state(old, new).verb(old, new).event(old, new))`:\n  \
             \"parcel\": 1 exhausted call of the verb `labelled`, since 2030-01-01T00:00:10Z\n  \
             \"parcel\": 1 is delayed: the event `Label`, due from 2030-01-01T00:01:20Z\n  \
             \"parcel\": 1 open call of `packed`, caught by the verb `mislabelled`, since 2030-01-01T00:00:20Z\n  \
             \"parcel\": 1 open call of the verb `labelled`, since 2030-01-01T00:00:20Z\n  \
             \"parcel\": 1 waits: the event `Label`, since 2030-01-01T00:00:20Z\n  \
             \"parcel\": 2 instances in the state `labelled`, since 2030-01-01T00:00:00Z"
        );
        let half = Migrate::machine("parcel").state("labelled", "addressed").event("Label", "Address").verb("mislabelled", "lost_label");
        let drift = new_code().migrate(half).beside(bed).await.err().unwrap().to_string();
        assert_eq!(drift.matches("\n  ").count(), 2, "{drift}");
        assert!(old_code().beside(bed).await.is_ok(), "nothing was changed by a start that was stopped");
    }
}

promise! {
    async fn a_mapping_gives_rows_the_names_of_the_code_and_the_history_tells_it(bed in old_code()) {
        parcels_of_the_old_code(bed).await;
        let bed = new_code().migrate(mapping()).beside(bed).await.unwrap();
        let parcels = bed.machine::<new::Parcel>();
        let history = async |key: &str| {
            parcels.history(key).await.unwrap().iter().map(ToString::to_string).filter(|line| line.contains("migrated")).collect::<Vec<_>>()
        };
        assert_eq!(history("rests").await, ["2030-01-01T00:00:20Z  migrated: state `labelled` is `addressed` now; timed are `Timeout` now"]);
        assert_eq!(history("retried").await, ["2030-01-01T00:00:20Z  migrated: its call of `labelled` runs `addressed` now"]);
        assert_eq!(
            history("waits").await,
            ["2030-01-01T00:00:20Z  migrated: its call of `packed` is caught by `lost_label` now; waiting are `Address` now"]
        );
        assert_eq!(history("ended").await, [""; 0]);
        assert!(new_code().migrate(mapping()).beside(&bed).await.is_ok(), "the second time there is nothing to do");
        assert_eq!(history("rests").await.len(), 1);

        parcels.send("ships", new::Ship).await.unwrap();
        parcels.retry("in-error").await.unwrap();
        bed.advance(Duration::from_secs(120)).await;
        let state = async |key: &str| parcels.get(key).await.unwrap().unwrap().state;
        assert_eq!(state("ships").await, Some(new::ParcelState::Shipped));
        for key in ["rests", "retried", "waits", "delayed", "in-error"] {
            assert_eq!(state(key).await, Some(new::ParcelState::Addressed), "{key}");
        }
        bed.advance(Duration::from_secs(3600)).await;
        assert_eq!(state("rests").await, Some(new::ParcelState::Returned), "its timer went on");
    }
}

promise! {
    async fn an_idle_instance_that_is_mapped_to_an_end_is_completed(bed in old_code()) {
        let parcels = bed.machine::<old::Parcel>();
        for n in 0..250 {
            parcels.send(format!("p-{n}"), old::Pack { failures: 0 }).await.unwrap();
            parcels.send(format!("p-{n}"), LABEL).await.unwrap();
        }
        bed.settle().await;
        let bed = new_code().migrate(Migrate::machine("parcel").state("labelled", "shipped")).beside(bed).await.unwrap();
        let counts = bed.machine::<new::Parcel>().counts().await.unwrap();
        let counts: Vec<_> = counts.iter().map(|count| (count.state, count.status, count.count)).collect();
        assert_eq!(counts, [(Some(new::ParcelState::Shipped), Status::Completed, 250)]);
        bed.advance(Duration::from_secs(7200)).await;
        assert_eq!(bed.machine::<new::Parcel>().get("p-7").await.unwrap().unwrap().state, Some(new::ParcelState::Shipped));
    }
}

promise! {
    async fn a_mapping_that_cannot_be_says_what_would(bed in old_code()) {
        let mistakes = [
            (Migrate::machine("parcels").state("a", "b"), "this process serves no machine \"parcels\"; it has parcel"),
            (
                Migrate::machine("parcel").state("packed", "addressed"),
                "\"parcel\" still has the state `packed`: only one that it lacks can be mapped",
            ),
            (
                Migrate::machine("parcel").event("Label", "Adress"),
                "\"parcel\" has no event `Adress` to map `Label` to; it has `Address`, `Pack`, `Ship`",
            ),
        ];
        for (mapping, says) in mistakes {
            assert_eq!(new_code().migrate(mapping).beside(bed).await.err().unwrap().to_string(), says);
        }
    }
}

promise! {
    async fn old_and_new_processes_side_by_side_run_only_what_they_have(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        for key in ["p-old", "p-new"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
        }
        old.settle().await;
        of_old.send("p-old", old::Label { failures: 1 }).await.unwrap();
        of_new.send("p-new", new::Address { failures: 1 }).await.unwrap();
        old.settle().await;
        new.settle().await;

        new.outage(Duration::from_secs(5)).await;
        new.settle().await;
        let attempts = async |key: &str| of_new.attempts(key).await.unwrap().iter().skip(1).map(|attempt| attempt.state).collect::<Vec<_>>();
        assert_eq!(attempts("p-old").await, [AttemptState::Error, AttemptState::Scheduled], "a new process does not burn an old one's attempts");
        assert_eq!(attempts("p-new").await, [AttemptState::Error, AttemptState::Success]);
        old.settle().await;
        assert_eq!(attempts("p-old").await, [AttemptState::Error, AttemptState::Success]);

        // Each fires the timers of the states that it has.
        old.outage(Duration::from_secs(3600)).await;
        old.settle().await;
        assert_eq!(of_old.get("p-old").await.unwrap().unwrap().state, Some(old::ParcelState::Returned));
        assert_eq!(of_new.get("p-new").await.unwrap().unwrap().state, Some(new::ParcelState::Addressed));
        new.settle().await;
        assert_eq!(of_new.get("p-new").await.unwrap().unwrap().state, Some(new::ParcelState::Returned));
    }
}

/// `Pack` fails once, so that its parcel is busy until five seconds have passed.
const BUSY: old::Pack = old::Pack { failures: 1 };
const FIVE_SECONDS: Duration = Duration::from_secs(5);

async fn five_seconds_pass(bed: &Bed) {
    bed.outage(FIVE_SECONDS).await;
}

promise! {
    async fn an_event_that_only_new_code_has_is_left_to_it_by_old_code_and_the_reverse(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        for key in ["to-new", "to-old"] {
            of_old.send(key, BUSY).await.unwrap();
        }
        old.settle().await;
        assert_eq!(of_new.send("to-new", new::Address { failures: 0 }).await.unwrap().fate, Fate::Queued);
        assert_eq!(of_new.send("to-new", new::Ship).await.unwrap().fate, Fate::Queued);
        assert_eq!(of_old.send("to-old", LABEL).await.unwrap().fate, Fate::Queued);
        assert_eq!(of_old.send("to-old", old::Ship).await.unwrap().fate, Fate::Queued);
        let as_new = async |key: &str| {
            let parcel = of_new.get(key).await.unwrap().unwrap();
            (parcel.version, parcel.status, parcel.inbox_len)
        };
        let as_old = async |key: &str| {
            let parcel = of_old.get(key).await.unwrap().unwrap();
            (parcel.version, parcel.status, parcel.inbox_len)
        };

        // Old code takes up both calls, and leaves what it cannot judge, with all that is behind it.
        five_seconds_pass(old).await;
        old.settle().await;
        assert_eq!(as_new("to-new").await, (1, Status::Running, 2), "it waits for code that has it");
        assert_eq!(as_old("to-old").await, (3, Status::Completed, 0));
        // What is sent meanwhile comes after it.
        assert!(of_old.send("to-new", LABEL).or_refuse().await.unwrap_err().is_busy());
        new.settle().await;
        assert_eq!(as_new("to-new").await, (3, Status::Completed, 0));
        assert!(of_new.history("to-new").await.unwrap().iter().all(|entry| !entry.to_string().contains("rejected")));

        // The same the other way round.
        of_old.send("again", BUSY).await.unwrap();
        old.settle().await;
        of_old.send("again", LABEL).await.unwrap();
        five_seconds_pass(&new).await;
        new.settle().await;
        assert_eq!(as_new("again").await, (1, Status::Running, 1));
        old.settle().await;
        assert_eq!(as_old("again").await, (2, Status::Running, 0));
    }
}

promise! {
    async fn what_is_sent_to_a_state_that_the_senders_code_lacks_waits_for_code_that_has_it(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        of_old.send("p", old::Pack { failures: 0 }).await.unwrap();
        old.settle().await;
        of_new.send("p", new::Address { failures: 0 }).await.unwrap();
        new.settle().await;
        // Old code knows neither the state nor what it takes.
        assert_eq!(of_old.send("p", old::Ship).await.unwrap().fate, Fate::Queued);
        old.settle().await;
        assert_eq!(of_new.get("p").await.unwrap().unwrap().inbox_len, 1);
        new.settle().await;
        assert_eq!(of_new.get("p").await.unwrap().unwrap().status, Status::Completed);

        // What nobody can judge waits, and nobody looks at it again and again.
        of_new.send("q", new::Pack { failures: 0 }).await.unwrap();
        of_new.send("q", new::Address { failures: 0 }).await.unwrap();
        new.settle().await;
        assert_eq!(of_old.send("q", LABEL).await.unwrap().fate, Fate::Queued);
        old.settle().await;
        new.settle().await;
        assert_eq!(of_new.get("q").await.unwrap().unwrap().inbox_len, 1);
        let mapped = new_code().migrate(mapping()).beside(old).await.unwrap();
        mapped.settle().await;
        let told: Vec<_> = of_new.history("q").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected: `parcel` `q` is in `addressed`")), "{told:#?}");
    }
}

promise! {
    /// Each fails its last attempt in the hands of code that lacks the verb that catches it.
    async fn a_catch_verb_runs_in_code_that_has_it(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        of_new.send("p", new::Pack { failures: 99 }).await.unwrap();
        new.settle().await;
        of_old.set_retry("p", fsm::Retry { catch: Some("lost_label".into()), ..fsm::Retry::every(FIVE_SECONDS).retries_at_most(1) }).await.unwrap();
        for _ in 0..2 {
            five_seconds_pass(old).await;
            old.settle().await;
        }
        let call = of_new.get("p").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.verb.as_str(), call.state), ("lost_label", AttemptState::Scheduled));
        new.settle().await;
        let parcel = of_old.get("p").await.unwrap().unwrap();
        assert_eq!((parcel.status, parcel.error.as_deref()), (Status::Error, Some("not yet")));
        let told: Vec<_> = of_old.history("p").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("attempt 1 of `lost_label`: success")), "{told:#?}");
    }
}

promise! {
    async fn what_old_code_writes_after_the_mapping_is_mapped_too(old in old_code()) {
        let new = new_code().migrate(mapping()).beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        for key in ["rests", "waits"] {
            of_old.send(key, old::Pack { failures: u32::from(key == "waits") }).await.unwrap();
            old.settle().await;
            of_old.send(key, LABEL).await.unwrap();
            old.settle().await;
        }
        let unreadable = of_new.get("rests").await.unwrap_err().to_string();
        assert_eq!(unreadable, "`parcel` `rests` is in the state `labelled`, which this program's machine does not have");
        new.advance(Duration::from_secs(60)).await;
        for key in ["rests", "waits"] {
            let parcel = of_new.get(key).await.unwrap().unwrap();
            assert_eq!((parcel.state, parcel.inbox_len), (Some(new::ParcelState::Addressed), 0), "{key}");
            assert!(of_new.history(key).await.unwrap().iter().any(|entry| entry.to_string().contains("migrated")), "{key}");
        }
        // The looks become rare, and do not end.
        of_old.send("late", old::Pack { failures: 0 }).await.unwrap();
        of_old.send("late", LABEL).await.unwrap();
        old.settle().await;
        new.advance(Duration::from_secs(60)).await;
        assert!(of_new.get("late").await.is_err());
        new.advance(Duration::from_secs(60)).await;
        assert_eq!(of_new.get("late").await.unwrap().unwrap().state, Some(new::ParcelState::Addressed));
    }
}

const TEN_MINUTES: Duration = Duration::from_secs(600);

promise! {
    async fn a_timer_that_a_deploy_adds_begins_for_those_who_rest_in_its_state_already(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        for key in ["rests", "labelled"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
        }
        of_old.send("busy", old::Pack { failures: 0 }).await.unwrap();
        old.settle().await;
        of_old.send("labelled", LABEL).await.unwrap();
        of_old.send("busy", old::Label { failures: 1 }).await.unwrap();
        old.settle().await;
        old.outage(TEN_MINUTES).await;

        let timed = Bed::builder().only::<old::timed::Parcel>().beside(old).await.unwrap();
        let of_timed = timed.machine::<old::timed::Parcel>();
        let state = async |key: &str| of_timed.get(key).await.unwrap().unwrap().state.unwrap();
        use old::timed::ParcelState::{Forgotten, Labelled, Packed, Returned};
        timed.advance(TEN_MINUTES).await;
        of_old.send("later", old::Pack { failures: 0 }).await.unwrap();
        old.settle().await;
        timed.advance(TEN_MINUTES - FIVE_SECONDS).await;
        assert_eq!((state("rests").await, state("labelled").await, state("busy").await), (Packed, Labelled, Labelled));
        old.outage(FIVE_SECONDS).await;
        old.settle().await;
        assert_eq!(state("rests").await, Packed, "old code does not fire, or drop, what it does not have");
        timed.settle().await;
        assert_eq!(state("rests").await, Forgotten, "half an hour after it was entered");
        timed.advance(2 * TEN_MINUTES - FIVE_SECONDS).await;
        assert_eq!(state("later").await, Packed);
        timed.advance(FIVE_SECONDS).await;
        assert_eq!(state("later").await, Forgotten, "entered by old code while the new one ran");

        // A timer that was set under another declaration keeps its moment.
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
        old.settle().await;
        old.outage(FIVE_SECONDS).await;
        let timeless = Bed::builder().only::<old::timeless::Parcel>().beside(old).await.unwrap();
        let of_timeless = timeless.machine::<old::timeless::Parcel>();
        of_timeless.send("q", old::Ship).await.unwrap();
        timeless.advance(Duration::from_secs(7200)).await;
        assert_eq!(of_timeless.get("q").await.unwrap().unwrap().status, Status::Completed);
        old.settle().await;
        let parcel = of_old.get("p").await.unwrap().unwrap();
        assert_eq!((parcel.state, parcel.version), (Some(old::ParcelState::Labelled), 2), "its timer was dropped when it came due");
        // A definition that is not the newest drops nothing.
        old.outage(FIVE_SECONDS).await;
        let timed = Bed::builder().only::<old::timed::Parcel>().beside(old).await.unwrap();
        let of_timed = timed.machine::<old::timed::Parcel>();
        timed.settle().await;
        assert_eq!(of_timed.get("p").await.unwrap().unwrap().status, Status::Completed, "it is two hours since it was entered");
        of_timed.send("r", old::Pack { failures: 0 }).await.unwrap();
        timed.settle().await;
        timeless.advance(Duration::from_secs(3600)).await;
        timed.settle().await;
        assert_eq!(of_timed.get("r").await.unwrap().unwrap().state, Some(old::timed::ParcelState::Forgotten));
    }
}

promise! {
    async fn an_ended_instance_of_a_state_that_is_gone_stops_nothing_and_is_named(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        for key in ["returned", "shipped"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
            of_old.send(key, LABEL).await.unwrap();
        }
        of_old.send("shipped", old::Ship).await.unwrap();
        old.advance(Duration::from_secs(3600)).await;
        let timeless = Bed::builder().only::<old::timeless::Parcel>().beside(old).await.unwrap();
        let parcels = timeless.machine::<old::timeless::Parcel>();
        let why = "`parcel` `returned` is in the state `returned`, which this program's machine does not have";
        assert_eq!(parcels.get("returned").await.unwrap_err().to_string(), why);
        let page = parcels.list(fsm::Filter::default()).await.unwrap();
        assert_eq!(page.items.iter().map(|parcel| parcel.key.as_str()).collect::<Vec<_>>(), ["shipped"]);
        assert_eq!(page.unreadable.iter().map(|one| (one.key.as_str(), one.why.as_str())).collect::<Vec<_>>(), [("returned", why)]);
        let counts: Vec<_> = parcels.counts().await.unwrap().iter().map(|count| format!("{count:?}")).collect();
        assert_eq!(counts, ["1 completed in `returned`", "1 completed in Some(Shipped)"]);
        assert!(parcels.history("returned").await.unwrap().len() > 3, "its history needs no types");
    }
}

promise! {
    async fn a_dedup_id_names_the_same_request_after_its_event_was_renamed(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        of_old.send("p", old::Pack { failures: 0 }).await.unwrap();
        let first = of_old.send("p", LABEL).dedup("evt-7").await.unwrap();
        old.settle().await;
        let new = new_code().migrate(mapping()).beside(old).await.unwrap();
        let of_new = new.machine::<new::Parcel>();
        let again = of_new.send("p", new::Address { failures: 0 }).dedup("evt-7").await.unwrap();
        assert_eq!((again.fate, again.call), (Fate::Duplicate, first.call));
        assert!(of_new.send("p", new::Address { failures: 1 }).dedup("evt-7").await.unwrap_err().is_conflict());
        assert!(of_new.send("p", new::Ship).dedup("evt-7").await.unwrap_err().is_conflict());
    }
}

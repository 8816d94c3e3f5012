//! Drift between code and database: a start fails if live rows need names that the code lacks, a mapping renames them, and old and new
//! processes work side by side. This is a test program of its own, because it has two machines with one name.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../promises/support.rs"]
mod support;

#[cfg(feature = "postgres")]
mod between_partitions;
mod new;
mod old;
mod search;
mod side_by_side;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../promises/sql_runner.rs"]
mod sql_runner;
mod timers;

use std::time::Duration;

use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Migrate, SendOutcome, Status};
use sql_runner::{SqlRunner, is_postgres, run};
use support::promise;

fn old_code() -> TestBedBuilder {
    TestBed::builder().only::<old::Parcel>()
}

fn new_code() -> TestBedBuilder {
    TestBed::builder().only::<new::Parcel>()
}

fn mapping() -> Migrate {
    Migrate::machine("parcel")
        .state("labelled", "addressed")
        .verb("labelled", "addressed")
        .verb("mislabelled", "lost_label")
        .event("Label", "Address")
}

/// From now on the database refuses the statements `moment` (such as `update on fsm_instances`) for the rows that fit the condition.
async fn refuse(bed: &TestBed, moment: &str, condition: &str) {
    if is_postgres(bed) {
        let row = if moment.starts_with("delete") { "old" } else { "new" };
        let raises = format!("if {condition} then raise 'not this one'; end if; return {row};");
        run(bed, format!("create function refuses() returns trigger language plpgsql as $$ begin {raises} end $$")).await;
        run(bed, format!("create trigger refuses before {moment} for each row execute function refuses()")).await;
    } else {
        let raises = "select raise(abort, 'not this one');";
        run(bed, format!("create trigger refuses before {moment} for each row when {condition} begin {raises} end")).await;
    }
}

/// Ends the refusals.
async fn refuse_no_more(bed: &TestBed, table: &str) {
    run(bed, if is_postgres(bed) { format!("drop trigger refuses on {table}") } else { "drop trigger refuses".to_owned() }).await;
}

const FIVE_SECONDS: Duration = Duration::from_secs(5);
const LABEL: old::Label = old::Label { failures: 0 };

/// Creates parcels with the old code, in every situation in which its names are needed: two rest in `labelled`, one is in a retry of it,
/// one is in error, one has its event in the inbox, and one receives the event in a minute. One has ended.
async fn parcels_of_the_old_code(bed: &TestBed) {
    let parcels = bed.machine::<old::Parcel>();
    for key in ["rests", "ships", "retried", "in-error", "delayed", "ended"] {
        parcels.send(key, old::Pack { failures: 0 }).await.unwrap();
    }
    bed.run_until_idle().await;
    for key in ["rests", "ships", "ended"] {
        parcels.send(key, LABEL).await.unwrap();
    }
    parcels.send("in-error", old::Label { failures: 3 }).await.unwrap();
    bed.advance(Duration::from_secs(20)).await;
    parcels.send("ended", old::Ship).await.unwrap();
    parcels.send("retried", old::Label { failures: 1 }).await.unwrap();
    parcels.send("waits", old::Pack { failures: 1 }).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(parcels.send("waits", LABEL).await.unwrap().outcome, SendOutcome::Queued);
    parcels.send("delayed", LABEL).after(Duration::from_secs(60)).await.unwrap();
}

promise! {
    /// With partitions, the list is that of all of them.
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
        let history = bed.machine::<old::Parcel>().history("rests").await.unwrap();
        assert!(!history.iter().any(|line| line.to_string().contains("migrated")), "a failed start renames nothing: {history:?}");
        assert!(old_code().beside(bed).await.is_ok(), "a failed start changes nothing");
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
        assert_eq!(history("rests").await, ["2030-01-01T00:00:20Z  migrated: state `labelled` renamed to `addressed`; timer events renamed to `Timeout`"]);
        assert_eq!(history("retried").await, ["2030-01-01T00:00:20Z  migrated: verb of the call renamed from `labelled` to `addressed`"]);
        assert_eq!(
            history("waits").await,
            ["2030-01-01T00:00:20Z  migrated: catch verb of the call renamed to `lost_label`; waiting events renamed to `Address`"]
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
        assert_eq!(state("rests").await, Some(new::ParcelState::Returned), "its timer continued");
    }
}

promise! {
    async fn an_idle_instance_that_is_mapped_to_an_end_is_completed(bed in old_code()) {
        let parcels = bed.machine::<old::Parcel>();
        for n in 0..250 {
            parcels.send(format!("p-{n}"), old::Pack { failures: 0 }).await.unwrap();
            parcels.send(format!("p-{n}"), LABEL).await.unwrap();
        }
        bed.run_until_idle().await;
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
    async fn an_ended_instance_of_a_state_that_is_gone_stops_nothing_and_is_named(old in old_code()) {
        let of_old = old.machine::<old::Parcel>();
        for key in ["returned", "shipped"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
            of_old.send(key, LABEL).await.unwrap();
        }
        of_old.send("shipped", old::Ship).await.unwrap();
        old.advance(Duration::from_secs(3600)).await;
        let timeless = TestBed::builder().only::<old::timeless::Parcel>().beside(old).await.unwrap();
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
        old.run_until_idle().await;
        let new = new_code().migrate(mapping()).beside(old).await.unwrap();
        let of_new = new.machine::<new::Parcel>();
        let again = of_new.send("p", new::Address { failures: 0 }).dedup("evt-7").await.unwrap();
        assert_eq!((again.outcome, again.call), (SendOutcome::Duplicate, first.call));
        assert!(of_new.send("p", new::Address { failures: 1 }).dedup("evt-7").await.unwrap_err().is_conflict());
        assert!(of_new.send("p", new::Ship).dedup("evt-7").await.unwrap_err().is_conflict());
    }
}

promise! {
    async fn an_instance_that_cannot_be_renamed_keeps_no_other_from_it_nor_the_start(old in old_code().only::<SqlRunner>()) {
        let of_old = old.machine::<old::Parcel>();
        for n in 0..4 {
            of_old.send(format!("p-{n}"), old::Pack { failures: 0 }).await.unwrap();
            of_old.send(format!("p-{n}"), LABEL).await.unwrap();
        }
        old.run_until_idle().await;
        refuse(old, "update on fsm_instances", "new.key = 'p-1'").await;
        let new = new_code().migrate(mapping()).beside(old).await.unwrap();
        let of_new = new.machine::<new::Parcel>();
        let page = of_new.list(fsm::Filter::default()).await.unwrap();
        assert_eq!(page.items.iter().map(|parcel| parcel.key.as_str()).collect::<Vec<_>>(), ["p-0", "p-2", "p-3"]);
        assert!(page.items.iter().all(|parcel| parcel.state == Some(new::ParcelState::Addressed)));
        assert_eq!(page.unreadable.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["p-1"]);
        refuse_no_more(old, "fsm_instances").await;
        new.advance(Duration::from_secs(600)).await;
        assert_eq!(of_new.get("p-1").await.unwrap().unwrap().state, Some(new::ParcelState::Addressed), "it is tried again");
    }
}

//! Old and new processes side by side: each leaves work to the process whose code has it, and names that old code writes are mapped.

use std::time::Duration;

use fsm::testing::TestBed;
use fsm::{AttemptState, SendOutcome, Status};

use crate::support::promise;
use crate::{FIVE_SECONDS, LABEL, mapping, new, new_code, old, old_code};

/// `Pack` fails once, so the parcel is busy for five seconds.
const BUSY: old::Pack = old::Pack { failures: 1 };

async fn five_seconds_pass(bed: &TestBed) {
    bed.outage(FIVE_SECONDS).await;
}

promise! {
    async fn old_and_new_processes_side_by_side_run_only_what_they_have(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        for key in ["p-old", "p-new"] {
            of_old.send(key, old::Pack { failures: 0 }).await.unwrap();
        }
        old.run_until_idle().await;
        of_old.send("p-old", old::Label { failures: 1 }).await.unwrap();
        of_new.send("p-new", new::Address { failures: 1 }).await.unwrap();
        old.run_until_idle().await;
        new.run_until_idle().await;

        new.outage(Duration::from_secs(5)).await;
        new.run_until_idle().await;
        let attempts = async |key: &str| of_new.attempts(key).await.unwrap().iter().skip(1).map(|attempt| attempt.state).collect::<Vec<_>>();
        assert_eq!(attempts("p-old").await, [AttemptState::Error, AttemptState::Scheduled], "a new process uses no attempt of an old one");
        assert_eq!(attempts("p-new").await, [AttemptState::Error, AttemptState::Success]);
        old.run_until_idle().await;
        assert_eq!(attempts("p-old").await, [AttemptState::Error, AttemptState::Success]);

        // Each process fires the timers of the states that its code has.
        old.outage(Duration::from_secs(3600)).await;
        old.run_until_idle().await;
        assert_eq!(of_old.get("p-old").await.unwrap().unwrap().state, Some(old::ParcelState::Returned));
        assert_eq!(of_new.get("p-new").await.unwrap().unwrap().state, Some(new::ParcelState::Addressed));
        new.run_until_idle().await;
        assert_eq!(of_new.get("p-new").await.unwrap().unwrap().state, Some(new::ParcelState::Returned));
    }
}

promise! {
    async fn an_event_that_only_new_code_has_is_left_to_it_by_old_code_and_the_reverse(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        for key in ["to-new", "to-old"] {
            of_old.send(key, BUSY).await.unwrap();
        }
        old.run_until_idle().await;
        assert_eq!(of_new.send("to-new", new::Address { failures: 0 }).await.unwrap().outcome, SendOutcome::Queued);
        assert_eq!(of_new.send("to-new", new::Ship).await.unwrap().outcome, SendOutcome::Queued);
        assert_eq!(of_old.send("to-old", LABEL).await.unwrap().outcome, SendOutcome::Queued);
        assert_eq!(of_old.send("to-old", old::Ship).await.unwrap().outcome, SendOutcome::Queued);
        let as_new = async |key: &str| {
            let parcel = of_new.get(key).await.unwrap().unwrap();
            (parcel.version, parcel.status, parcel.inbox_len)
        };
        let as_old = async |key: &str| {
            let parcel = of_old.get(key).await.unwrap().unwrap();
            (parcel.version, parcel.status, parcel.inbox_len)
        };

        // The old process takes both calls. It leaves an event that it cannot judge, and all events behind it.
        five_seconds_pass(old).await;
        old.run_until_idle().await;
        assert_eq!(as_new("to-new").await, (1, Status::Running, 2), "the event waits for code that has it");
        assert_eq!(as_old("to-old").await, (3, Status::Completed, 0));
        // An event that is sent meanwhile waits behind it.
        assert!(of_old.send("to-new", LABEL).reject_if_busy().await.unwrap_err().is_busy());
        new.run_until_idle().await;
        assert_eq!(as_new("to-new").await, (3, Status::Completed, 0));
        assert!(of_new.history("to-new").await.unwrap().iter().all(|entry| !entry.to_string().contains("rejected")));

        // The same in the opposite direction.
        of_old.send("again", BUSY).await.unwrap();
        old.run_until_idle().await;
        of_old.send("again", LABEL).await.unwrap();
        five_seconds_pass(&new).await;
        new.run_until_idle().await;
        assert_eq!(as_new("again").await, (1, Status::Running, 1));
        old.run_until_idle().await;
        assert_eq!(as_old("again").await, (2, Status::Running, 0));
    }
}

promise! {
    async fn what_is_sent_to_a_state_that_the_senders_code_lacks_waits_for_code_that_has_it(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        of_old.send("p", old::Pack { failures: 0 }).await.unwrap();
        old.run_until_idle().await;
        of_new.send("p", new::Address { failures: 0 }).await.unwrap();
        new.run_until_idle().await;
        // The old code has neither the state nor the events that it accepts.
        assert_eq!(of_old.send("p", old::Ship).await.unwrap().outcome, SendOutcome::Queued);
        old.run_until_idle().await;
        assert_eq!(of_new.get("p").await.unwrap().unwrap().inbox_len, 1);
        new.run_until_idle().await;
        assert_eq!(of_new.get("p").await.unwrap().unwrap().status, Status::Completed);

        // An event that no running process can judge waits, without being checked again and again.
        of_new.send("q", new::Pack { failures: 0 }).await.unwrap();
        of_new.send("q", new::Address { failures: 0 }).await.unwrap();
        new.run_until_idle().await;
        assert_eq!(of_old.send("q", LABEL).await.unwrap().outcome, SendOutcome::Queued);
        old.run_until_idle().await;
        new.run_until_idle().await;
        assert_eq!(of_new.get("q").await.unwrap().unwrap().inbox_len, 1);
        let mapped = new_code().migrate(mapping()).beside(old).await.unwrap();
        mapped.run_until_idle().await;
        let told: Vec<_> = of_new.history("q").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected: `parcel` `q` is in `addressed`")), "{told:#?}");
    }
}

promise! {
    /// Each process has its last attempt run by code that lacks the catch verb.
    async fn a_catch_verb_runs_in_code_that_has_it(old in old_code()) {
        let new = new_code().beside(old).await.unwrap();
        let (of_old, of_new) = (old.machine::<old::Parcel>(), new.machine::<new::Parcel>());
        of_new.send("p", new::Pack { failures: 99 }).await.unwrap();
        new.run_until_idle().await;
        of_old.set_retry("p", fsm::Retry { catch: Some("lost_label".into()), ..fsm::Retry::every(FIVE_SECONDS).retries_at_most(1) }).await.unwrap();
        for _ in 0..2 {
            five_seconds_pass(old).await;
            old.run_until_idle().await;
        }
        let call = of_new.get("p").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.verb.as_str(), call.state), ("lost_label", AttemptState::Scheduled));
        new.run_until_idle().await;
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
            old.run_until_idle().await;
            of_old.send(key, LABEL).await.unwrap();
            old.run_until_idle().await;
        }
        let unreadable = of_new.get("rests").await.unwrap_err().to_string();
        assert_eq!(unreadable, "`parcel` `rests` is in the state `labelled`, which this program's machine does not have");
        new.advance(Duration::from_secs(60)).await;
        for key in ["rests", "waits"] {
            let parcel = of_new.get(key).await.unwrap().unwrap();
            assert_eq!((parcel.state, parcel.inbox_len), (Some(new::ParcelState::Addressed), 0), "{key}");
            assert!(of_new.history(key).await.unwrap().iter().any(|entry| entry.to_string().contains("migrated")), "{key}");
        }
        // The reconciler's scans become rarer, but they do not stop.
        of_old.send("late", old::Pack { failures: 0 }).await.unwrap();
        of_old.send("late", LABEL).await.unwrap();
        old.run_until_idle().await;
        new.advance(Duration::from_secs(60)).await;
        assert!(of_new.get("late").await.is_err());
        new.advance(Duration::from_secs(60)).await;
        assert_eq!(of_new.get("late").await.unwrap().unwrap().state, Some(new::ParcelState::Addressed));
    }
}

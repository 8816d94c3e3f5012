//! Everything that a handle shows has a JSON form, with the timers and the waiting events of an instance.

use std::time::Duration;

use fsm::{PendingTimer, SendOutcome};
use serde_json::{Value, json};

use crate::payment::{Cancel, OnlinePaymentCompleted, Payment, checkout, failing, paid_with};
use crate::support::promise;

promise! {
    async fn an_instance_shows_its_timers_and_the_events_that_wait(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        payments.send("o-1", OnlinePaymentCompleted).await.unwrap();
        let later = payments.send("o-1", Cancel { by: "customer".into() }).after(Duration::from_secs(86_400)).await.unwrap();
        assert_eq!(later.outcome, SendOutcome::Scheduled);
        payments.pause("o-1").await.unwrap();
        let busy = payments.get("o-1").await.unwrap().unwrap();
        let waiting: Vec<_> = busy.waiting.iter().map(|event| (event.event.as_str(), event.since)).collect();
        assert_eq!(waiting, [("OnlinePaymentPaid", bed.now()), ("OnlinePaymentCompleted", bed.now())]);
        assert_eq!(busy.timers.len(), 1);
        assert_eq!((busy.timers[0].event.as_str(), busy.timers[0].state.as_deref()), ("Cancel", None));
        assert_eq!(busy.entered_at, None);

        payments.send("o-2", checkout()).await.unwrap();
        let settled = payments.settled("o-2").await.unwrap();
        let is_timer = |timer: &PendingTimer| (timer.event.clone(), timer.state.clone(), timer.due_at - bed.now(), timer.held);
        let timer = ("Timeout".to_owned(), Some("created".to_owned()), Duration::from_secs(1800), false);
        assert_eq!(settled.timers.iter().map(is_timer).collect::<Vec<_>>(), std::slice::from_ref(&timer));
        let listed = payments.list(fsm::Filter::default()).await.unwrap().items;
        assert_eq!(listed.iter().map(|one| (one.key.as_str(), one.timers.len(), one.waiting.len())).collect::<Vec<_>>(), [
            ("o-1", 1, 2),
            ("o-2", 1, 0),
        ]);
        let mut watch = payments.watch("o-2");
        assert_eq!(watch.next().await.unwrap().unwrap().timers.iter().map(is_timer).collect::<Vec<_>>(), [timer]);
        payments.send("o-2", paid_with("r")).await.unwrap();
        payments.send("o-2", OnlinePaymentCompleted).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-2").await.unwrap().unwrap().timers, []);
    }
}

promise! {
    async fn instances_attempts_and_history_serialise_under_the_names_of_their_fields(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let mut retried = serde_json::to_value(payments.get("o-1").await.unwrap().unwrap()).unwrap();
        let ids = [retried["id"].take(), retried["call"]["id"].take()];
        assert!(ids.iter().all(Value::is_string), "{ids:?}");
        assert_eq!(retried, json!({
            "id": null, "key": "o-1", "state": null, "entered_at": null, "status": "running", "paused": false,
            "record": { "authorised_cents": 0 }, "version": 0,
            "created_at": "2030-01-01T00:00:00Z", "updated_at": "2030-01-01T00:00:00Z",
            "call": {
                "id": null, "verb": "created", "event": "OnlinePaymentCreated", "state": "scheduled", "attempt": 2, "max_attempts": 11,
                "retries_left": 9, "snoozes": 0, "next_at": "2030-01-01T00:00:05Z", "last_error": "the gateway is down, 1 to go",
                "last_took_us": 0, "worker": null, "priority": "normal", "limit": null, "limit_value": null, "progress": null,
            },
            "inbox_len": 0, "waiting": [], "timers": [], "error": null, "fields": {}, "trace": null, "parent": null, "children": [],
        }));
        bed.advance(Duration::from_secs(5)).await;
        let created = serde_json::to_value(payments.get("o-1").await.unwrap().unwrap()).unwrap();
        assert_eq!((&created["state"], &created["entered_at"]), (&json!("created"), &json!("2030-01-01T00:00:05Z")));
        assert_eq!(created["timers"][0]["due_at"], "2030-01-01T00:30:05Z");

        let attempts = serde_json::to_value(payments.attempts("o-1").await.unwrap()).unwrap();
        assert_eq!((&attempts[0]["state"], &attempts[1]["took_us"]), (&json!("error"), &json!(0)));
        assert_eq!(attempts[1]["started_at"], "2030-01-01T00:00:05Z");
        let history = serde_json::to_value(payments.history("o-1").await.unwrap()).unwrap();
        let kinds: Vec<_> = history.as_array().unwrap().iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["event", "attempt", "scheduled", "attempt", "transition"]);
        assert_eq!((&history[4]["to"], &history[4]["at"]), (&json!("created"), &json!("2030-01-01T00:00:05Z")));
    }
}

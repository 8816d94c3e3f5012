//! The methods and fields of a handle, each under its name of the contract.

use std::time::SystemTime;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{HistoryEntry, HistoryEvent, SendOutcome, Sent};

use super::payment::{Cancel, Gateway, OnlinePaymentCompleted, OnlinePaymentPaid, Payment, PaymentState, checkout};

async fn bed(failures: u32) -> TestBed {
    TestBed::builder().data(Gateway::failing(failures)).sqlite().await
}

#[tokio::test]
async fn a_send_has_a_dedup_id_a_delay_and_may_be_refused() {
    let bed = bed(0).await;
    let payments = bed.machine::<Payment>();
    let sent: Sent = payments.send("o-1", checkout()).dedup("evt-1").await.unwrap();
    let Sent { instance: _, call, outcome } = sent;
    assert_eq!(outcome, SendOutcome::Started);
    let call: fsm::CallId = call.unwrap();
    assert_eq!(call, { call });
    assert!(!call.to_string().is_empty());
    let again = payments.send("o-1", checkout()).dedup("evt-1").await.unwrap();
    assert_eq!(again.outcome, SendOutcome::Duplicate);
    let conflict = payments.send("o-1", OnlinePaymentPaid { receipt: "r".into() }).dedup("evt-1").await.unwrap_err();
    assert!(conflict.is_conflict());
    let later = payments.send("o-1", OnlinePaymentPaid { receipt: "r".into() }).after(Duration::from_secs(60)).await.unwrap();
    assert_eq!(later.outcome, SendOutcome::Scheduled);
    let at: SystemTime = (bed.now() + Duration::from_secs(90)).into();
    payments.send("o-1", Cancel { by: "customer".into() }).at(at).await.unwrap();
    bed.run_until_idle().await;
    let refused = payments.send("o-1", OnlinePaymentCompleted).await.unwrap_err();
    assert!(refused.is_refused());
    assert!(!refused.is_busy() && !refused.is_not_found() && !refused.is_not_allowed() && !refused.is_database());
    bed.advance(Duration::from_secs(120)).await;
    assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Refunding));
}

#[tokio::test]
async fn a_send_has_a_priority() {
    let bed = bed(2).await;
    let payments = bed.machine::<Payment>();
    payments.send("o-1", checkout()).priority(Priority::High).await.unwrap();
    let items = [fsm::SendItem::new("o-2", checkout()).priority(fsm::Priority::Low)];
    payments.send_many(items).collect().await.unwrap().remove(0).unwrap();
    bed.run_until_idle().await;
    for (key, priority) in [("o-1", Priority::High), ("o-2", Priority::Low)] {
        assert_eq!(payments.get(key).await.unwrap().unwrap().call.unwrap().priority, priority);
    }
    assert_eq!(Priority::default(), Priority::Normal);
}

#[tokio::test]
async fn a_busy_instance_queues_or_rejects() {
    let bed = bed(1).await;
    let payments = bed.machine::<Payment>();
    payments.send("o-1", checkout()).await.unwrap();
    bed.run_until_idle().await;
    let busy = payments.send("o-1", Cancel { by: "c".into() }).reject_if_busy().await.unwrap_err();
    assert!(busy.is_busy());
    let queued = payments.send("o-1", Cancel { by: "c".into() }).await.unwrap();
    assert_eq!(queued.outcome, SendOutcome::Queued);
    let instance = payments.get("o-1").await.unwrap().unwrap();
    assert_eq!(instance.inbox_len, 1);
    let call = instance.call.unwrap();
    assert_eq!((call.verb.as_str(), call.event.as_str()), ("created", "OnlinePaymentCreated"));
    assert_eq!((call.attempt, call.max_attempts, call.retries_left), (2, Some(11), Some(9)));
    assert!(call.last_error.unwrap().contains("the gateway is down"));
    assert!(call.worker.is_none());
    assert!(call.next_at > bed.now());
    assert!(instance.created_at <= instance.updated_at);
}

#[tokio::test]
async fn an_instance_is_listed_counted_and_operated_on() {
    let bed = bed(100).await;
    let payments = bed.machine::<Payment>();
    payments.send("o-1", checkout()).await.unwrap();
    bed.advance(Duration::from_secs(24 * 3600)).await;
    let failed = payments.get("o-1").await.unwrap().unwrap();
    assert_eq!(failed.status, Status::Error);
    assert!(failed.error.unwrap().contains("the gateway is down"));
    let page = payments.list(Filter::default().status(Status::Error).limit(50)).await.unwrap();
    assert_eq!((page.items.len(), page.next.is_none()), (1, true));
    assert_eq!(payments.list(Filter::default().state(PaymentState::Created)).await.unwrap().items.len(), 0);
    let counts = payments.counts().await.unwrap();
    assert_eq!((counts[0].state, counts[0].status, counts[0].count), (None, Status::Error, 1));
    payments.retry("o-1").await.unwrap();
    payments.pause("o-1").await.unwrap();
    payments.resume("o-1").await.unwrap();
    payments.cancel("o-1", "the customer left").await.unwrap();
    assert!(payments.retry("o-1").await.unwrap_err().is_not_allowed());
    assert!(payments.history("nobody").await.unwrap_err().is_not_found());

    let history: Vec<HistoryEntry> = payments.history("o-1").await.unwrap();
    assert!(
        history.iter().any(|entry| matches!(entry.event, HistoryEvent::Note { .. }) && entry.to_string().contains("the customer left"))
    );
    let attempts = payments.attempts("o-1").await.unwrap();
    let first = &attempts[0];
    assert_eq!((first.number, first.verb.as_str(), first.event.as_str()), (1, "created", "OnlinePaymentCreated"));
    assert_eq!((first.from.as_deref(), first.to.as_str(), first.state), (None, "created", AttemptState::Error));
    assert!(first.scheduled_at <= first.started_at.unwrap() && first.started_at.unwrap() <= first.finished_at.unwrap());
    assert!(first.error.is_some() && first.worker.is_some() && first.call == attempts[1].call);
}

#[tokio::test]
async fn a_client_sends_what_a_runtime_runs() {
    let folder = std::env::temp_dir().join(format!("fsm-contract-client-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite://{}/payments.db", folder.display());
    let runtime = Runtime::builder().database(&url).machine::<Payment>().data(Gateway::default()).start().await.unwrap();
    let client = Client::connect(&url).await.unwrap();
    let payments = client.machine::<Payment>();
    payments.send("order-1", checkout()).await.unwrap();
    let payment = payments.settled("order-1").within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(payment.state, Some(PaymentState::Created));
    drop((payments, client));
    runtime.shutdown().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_timestamp_is_rfc_3339_and_its_difference_a_duration() {
    let one: Timestamp = SystemTime::UNIX_EPOCH.into();
    let other = one + Duration::from_millis(1500);
    assert_eq!(other - one, Duration::from_millis(1500));
    assert!(other.to_string().starts_with("1970-01-01T00:00:01.5"));
    let _: SystemTime = other.into();
}

#[test]
fn the_schema_lists_machines_and_verbs() {
    let schema = fsm::schema();
    let verb = schema.verbs.iter().find(|verb| verb.name == "created" && verb.module.ends_with("contract::payment")).unwrap();
    assert_eq!((verb.event.as_str(), verb.timeout), ("OnlinePaymentCreated", Some(Duration::from_secs(30))));
    assert!(schema.machines.iter().any(|machine| machine.name == "payment"));
    serde_json::to_string(&schema).unwrap();
}

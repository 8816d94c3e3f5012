//! The outbox of a partition: its claims exclude each other, and nothing that cannot be delivered hides other events.

use fsm_core::commit::partition_delivery::{Again, ClaimedLine, Finish};
use fsm_core::commit::rows::{Target, ToPartition};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::{Event, Outgoing};
use fsm_core::priority::Priority;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::samples::{at, call};
use crate::error::StoreError;
use crate::open::Store;
use crate::partition_outbox::{self, claim, finish};
#[cfg(feature = "sqlite")]
use crate::testing::EmptyDatabase;
use crate::testing::on_each;

const HERE: Target<'_> = Target { machine: "payment", key: "p" };
const SERVED: [&str; 1] = ["payment"];

fn served() -> Vec<String> {
    SERVED.map(str::to_owned).into()
}

fn outgoing(machine: &str, key: &str, deliver_at: Option<Timestamp>) -> Outgoing {
    let event = Event { name: "Paid".into(), payload: vec![1] };
    let (machine, key, priority) = (machine.to_owned(), key.to_owned(), Priority::Normal);
    Outgoing { id: call(), machine, key, event, deliver_at, is_required: false, search: Vec::new(), priority }
}

/// Adds the events for partition 1 at this time, and returns their calls.
async fn put(store: &Store, events: &[Outgoing], now: Timestamp) -> Vec<CallId> {
    let sender = InstanceId(Uuid::now_v7());
    let rows: Vec<_> = events.iter().map(|outgoing| ToPartition { partition: 1, sender, outgoing, notice: None }).collect();
    let mut tx = store.begin().await.unwrap();
    partition_outbox::put(&mut tx.conn(), &rows, now).await.unwrap();
    tx.commit().await.unwrap();
    events.iter().map(|event| event.id).collect()
}

async fn due(store: &Store, now: Timestamp, limit: u32) -> Vec<(String, String)> {
    partition_outbox::due(&mut store.reader().await.unwrap().conn(), 1, &served(), now, limit).await.unwrap()
}

async fn targets(store: &Store) -> Vec<(u32, Timestamp)> {
    partition_outbox::targets(&mut store.reader().await.unwrap().conn(), 2, &served()).await.unwrap()
}

async fn cancelled(store: &Store, sends: &[CallId]) -> usize {
    let mut tx = store.begin().await.unwrap();
    let unsent = partition_outbox::unsend(&mut tx.conn(), sends).await.unwrap();
    tx.commit().await.unwrap();
    unsent.len()
}

fn calls(line: &ClaimedLine) -> Vec<CallId> {
    line.events.iter().map(|event| event.call).collect()
}

#[tokio::test]
async fn events_for_machines_that_the_process_does_not_serve_hide_no_others() {
    on_each(|store| async move {
        let unknown: Vec<_> = (0..20).map(|n| outgoing("unknown", &format!("u-{n}"), None)).collect();
        put(&store, &unknown, at(100)).await;
        assert_eq!((targets(&store).await, due(&store, at(300), 10).await), (vec![], vec![]));
        put(&store, &[outgoing("payment", "p", None)], at(200)).await;
        assert_eq!(targets(&store).await, [(1, at(200))]);
        assert_eq!(due(&store, at(300), 10).await, [("payment".to_owned(), "p".to_owned())]);
    })
    .await;
}

/// Only SQLite stores an id that is too short.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_line_that_cannot_be_read_is_postponed_and_hides_no_others() {
    let store = EmptyDatabase::file().open().await;
    let first = put(&store, &[outgoing("payment", "bad", None)], at(100)).await;
    put(&store, &[outgoing("payment", "p", None)], at(200)).await;
    let second = put(&store, &[outgoing("payment", "p", None)], at(200)).await;
    let mut tx = store.begin().await.unwrap();
    let damage = format!(
        "update fsm_partition_outbox set sender = x'01' where call_id in (x'{}', x'{}')",
        first[0].0.simple(),
        second[0].0.simple()
    );
    tx.conn().script(damage.leak()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(due(&store, at(300), 1).await, [("payment".to_owned(), "bad".to_owned())]);
    let unread = claim(&store, Target { key: "bad", ..HERE }, at(300), at(900), 9).await;
    assert!(matches!(unread, Err(StoreError::Corrupt { .. })), "{unread:?}");
    assert_eq!(due(&store, at(300), 1).await, [("payment".to_owned(), "p".to_owned())]);
    let line = claim(&store, HERE, at(300), at(900), 9).await.unwrap().unwrap();
    assert_eq!(line.events.len(), 1, "the event before the one that cannot be read is delivered");
}

#[tokio::test]
async fn no_event_of_a_claim_is_in_another_claim_or_can_be_cancelled() {
    on_each(|store| async move {
        let events = [outgoing("payment", "p", None), outgoing("payment", "p", Some(at(150))), outgoing("payment", "p", Some(at(950)))];
        let sent = put(&store, &events, at(100)).await;
        let line = claim(&store, HERE, at(200), at(900), 9).await.unwrap().unwrap();
        assert_eq!(calls(&line), sent[..2], "the last one is not due");
        assert_eq!(claim(&store, HERE, at(300), at(900), 9).await.unwrap(), None);
        assert_eq!(cancelled(&store, &sent[..2]).await, 0);
        assert_eq!(cancelled(&store, &sent[2..]).await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_event_that_comes_due_waits_for_the_end_of_a_claim_of_later_events() {
    on_each(|store| async move {
        let sent = put(&store, &[outgoing("payment", "p", Some(at(250))), outgoing("payment", "p", None)], at(100)).await;
        let line = claim(&store, HERE, at(200), at(900), 9).await.unwrap().unwrap();
        assert_eq!(calls(&line), sent[1..]);
        assert_eq!(claim(&store, HERE, at(300), at(990), 9).await.unwrap(), None);
        assert_eq!(targets(&store).await, [(1, at(900))]);
        let end =
            Finish { delivered: calls(&line), notes: Vec::new(), again: Again { due_at: at(400), tries: 0 }, not_started: Vec::new() };
        assert!(finish(&store, &line, &end, at(400)).await.unwrap());
        let line = claim(&store, HERE, at(400), at(990), 9).await.unwrap().unwrap();
        assert_eq!(calls(&line), sent[..1]);
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_another_process_has_taken_over_is_not_finished() {
    on_each(|store| async move {
        let sent = put(&store, &[outgoing("payment", "p", None), outgoing("payment", "p", None)], at(100)).await;
        let late = claim(&store, HERE, at(200), at(300), 9).await.unwrap().unwrap();
        let line = claim(&store, HERE, at(300), at(900), 9).await.unwrap().unwrap();
        assert_eq!((calls(&late), calls(&line)), (sent.clone(), sent.clone()));
        let end = |delivered: &[CallId]| Finish {
            delivered: delivered.to_vec(),
            notes: Vec::new(),
            again: Again { due_at: at(400), tries: 0 },
            not_started: Vec::new(),
        };
        assert!(!finish(&store, &late, &end(&sent), at(400)).await.unwrap());
        assert!(finish(&store, &line, &end(&sent[..1]), at(400)).await.unwrap());
        let rest = claim(&store, HERE, at(500), at(990), 9).await.unwrap().unwrap();
        assert_eq!(calls(&rest), sent[1..]);
    })
    .await;
}

//! The rows that stand for children in other partitions: each report counts once, and an end is recorded after the start has left the outbox.

use std::collections::HashSet;

use fsm_core::commit::family_notice::{ChildReport, ChildStart, FamilyNotice};
use fsm_core::commit::partition_delivery::{Again, Finish};
use fsm_core::commit::rows::{RemoteChild, Target, ToPartition};
use fsm_core::family::Parent;
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::Status;
use fsm_core::outcome::{Child, Event, Outgoing};
use fsm_core::priority::Priority;
use uuid::Uuid;

use super::samples::{at, call};
use crate::open::Store;
use crate::partition_outbox::{self, claim, finish};
use crate::remote_children::{self, Heard, hear};
use crate::testing::on_each;

const HERE: Target<'_> = Target { machine: "payment", key: "p" };

fn child() -> Child {
    Child {
        id: call(),
        machine: "payment".into(),
        key: "p".into(),
        event: Event { name: "Paid".into(), payload: vec![1] },
        search: Vec::new(),
        is_detached: false,
        priority: Priority::Normal,
        end_event: Some("ChildEnded".into()),
        failure_event: None,
    }
}

fn report(parent: Parent, number: i64, status: Status) -> ChildReport {
    let (machine, key, state) = ("payment".into(), "p".into(), None);
    ChildReport { parent: parent.id, group: parent.group, machine, key, number, state, status, at: at(500) }
}

/// Starts the child, and returns the calls of those that were new.
async fn start(store: &Store, parent: Parent, child: &Child) -> HashSet<CallId> {
    let mut tx = store.begin().await.unwrap();
    let new = remote_children::put(&mut tx.conn(), &[RemoteChild { parent, partition: 1, child }], at(100)).await.unwrap();
    let outgoing = Outgoing::new(child.id, &child.machine, &child.key, child.event.clone());
    let (parent_machine, parent_key) = ("order".into(), "o-1".into());
    let notice =
        FamilyNotice::Start(ChildStart { group: parent.group, parent_machine, parent_key, is_detached: false, failure_event: None });
    let row = ToPartition { partition: 1, sender: parent.id, outgoing: &outgoing, notice: Some(&notice) };
    if !new.is_empty() {
        partition_outbox::put(&mut tx.conn(), &[row], at(100)).await.unwrap();
    }
    tx.commit().await.unwrap();
    new
}

#[tokio::test]
async fn a_child_of_another_partition_is_new_once_in_its_group() {
    on_each(|store| async move {
        let parent = Parent { id: InstanceId(Uuid::now_v7()), group: 1, partition: None };
        let first = child();
        assert_eq!(start(&store, parent, &first).await, [first.id].into());
        assert_eq!(start(&store, parent, &child()).await, HashSet::new());
        let of_next_group = child();
        assert_eq!(start(&store, Parent { group: 2, ..parent }, &of_next_group).await, [of_next_group.id].into());
    })
    .await;
}

#[tokio::test]
async fn an_end_is_recorded_once_and_after_the_start_has_left_the_outbox() {
    on_each(|store| async move {
        let (parent, child) = (Parent { id: InstanceId(Uuid::now_v7()), group: 1, partition: None }, child());
        start(&store, parent, &child).await;
        let line = claim(&store, HERE, at(200), at(900), 9).await.unwrap().unwrap();
        assert!(matches!(line.events[0].notice, Some(FamilyNotice::Start(_))));
        let ended = report(parent, 3, Status::Cancelled);
        let heard = async |report: &ChildReport, now| hear(&store, report, parent.id, call(), at(now)).await.unwrap();
        assert_eq!(heard(&ended, 300).await, Heard::ComesAgain, "the start is being delivered");
        let again = Again { due_at: at(400), tries: 0 };
        let end = Finish { delivered: vec![child.id], notes: Vec::new(), again, not_started: Vec::new() };
        assert!(finish(&store, &line, &end, at(400)).await.unwrap());
        assert_eq!(heard(&ended, 500).await, Heard::Recorded);
        let open = async || remote_children::to_cancel(&mut store.begin().await.unwrap().conn(), parent.id, 9).await.unwrap().len();
        assert_eq!(open().await, 0, "a child that has ended is not cancelled");
        // A later report of the same child comes too late.
        let late = report(parent, 9, Status::Completed);
        assert_eq!(heard(&late, 600).await, Heard::Unawaited("its parent no longer exists".into()));
    })
    .await;
}

#[tokio::test]
async fn a_start_that_nobody_delivers_leaves_the_outbox_with_the_end_and_an_old_report_changes_nothing() {
    on_each(|store| async move {
        let (parent, child) = (Parent { id: InstanceId(Uuid::now_v7()), group: 1, partition: None }, child());
        start(&store, parent, &child).await;
        // The process that delivered the start has died, and its claim has ended.
        claim(&store, HERE, at(200), at(300), 9).await.unwrap().unwrap();
        let heard = async |number, status| hear(&store, &report(parent, number, status), parent.id, call(), at(400)).await.unwrap();
        assert_eq!(heard(5, Status::Error).await, Heard::Recorded);
        let to_cancel = async || {
            let mut tx = store.begin().await.unwrap();
            remote_children::to_cancel(&mut tx.conn(), parent.id, 9).await.unwrap().len()
        };
        assert_eq!(to_cancel().await, 1, "a child in error has not ended");
        assert_eq!(heard(4, Status::Cancelled).await, Heard::Recorded);
        assert_eq!(to_cancel().await, 1, "the report is older than the last one");
        assert_eq!(heard(6, Status::Cancelled).await, Heard::Recorded);
        assert_eq!(to_cancel().await, 0);
        assert_eq!(claim(&store, HERE, at(500), at(900), 9).await.unwrap(), None, "nothing starts it again");
    })
    .await;
}

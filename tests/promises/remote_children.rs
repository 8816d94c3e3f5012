//! On a database with partitions, a verb starts children that belong to other partitions than their parent. They are children like others; their
//! start, their end and their cancellation are notices between the partitions.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{Access, AttemptState, HistoryEntry, HistoryEvent, console, partition_of};

use crate::console::Browser;
use crate::family::{
    Abandon, Deliver, Extend, Gather, Gathering, GatheringState, Lose, Order, OrderState, Pack, Parcel, ParcelState, Ship, family, hand,
    order, shipped, timeline,
};

const PARTITIONS: u32 = 4;

/// The first keys of this form, one for each partition except that of `o-1`.
fn elsewhere(form: &str) -> [String; 3] {
    let all = (0..PARTITIONS).filter(|partition| *partition != partition_of("o-1", PARTITIONS));
    let first = |partition| (0..).map(|n| format!("{form}-{n}")).find(|key| partition_of(key, PARTITIONS) == partition).unwrap();
    all.map(first).collect::<Vec<_>>().try_into().unwrap()
}

fn ship_to(keys: &[&str]) -> Ship {
    Ship { parcels: keys.iter().map(|key| (*key).to_owned()).collect(), ..Ship::default() }
}

async fn bed() -> TestBed {
    family().partitions(PARTITIONS).await
}

async fn parcel(bed: &TestBed, key: &str) -> (Option<ParcelState>, Status) {
    let parcel = bed.machine::<Parcel>().get(key).await.unwrap().unwrap();
    (parcel.state, parcel.status)
}

#[tokio::test]
async fn the_end_of_children_in_all_partitions_is_one_event() {
    let bed = bed().await;
    let [a, b, c] = elsewhere("p");
    let orders = shipped(&bed, []).await;
    let here = (0..).map(|n| format!("here-{n}")).find(|key| partition_of(key, PARTITIONS) == partition_of("o-1", PARTITIONS)).unwrap();
    orders.send("o-1", Extend { parcels: vec![a.clone(), here.clone(), b.clone(), c.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    for key in [&a, &b, &c, &here] {
        assert_eq!(parcel(&bed, key).await, (Some(ParcelState::Packed), Status::Running), "{key}");
    }
    hand(&bed, &[&a, &here]).await;
    bed.machine::<Parcel>().send(&b, Lose).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(order(&orders).await, (Some(OrderState::Shipping), Status::Running, vec![]), "one parcel is on its way");
    bed.machine::<Parcel>().cancel(&c, "it burnt").await.unwrap();
    bed.run_until_idle().await;
    let (state, _, lines) = order(&orders).await;
    assert_eq!(state, Some(OrderState::Delivered));
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("shipping: 2 delivered, 1 lost, 1 cancelled, "), "{line}");
    let listed = line.rsplit_once(", ").unwrap().1.split(' ').collect::<Vec<_>>();
    assert!([&a, &b, &c, &here].iter().all(|key| listed.contains(&&***key)) && listed.len() == 4, "{line}");
}

#[tokio::test]
async fn a_parent_hears_of_each_child_in_other_partitions() {
    let bed = bed().await;
    let ([a, b, _], [heavy, ..]) = (elsewhere("p"), elsewhere("heavy"));
    let orders = bed.machine::<Gathering>();
    orders.send("o-1", Gather { parcels: vec![a.clone(), b.clone(), heavy.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    hand(&bed, &[&b]).await;
    bed.machine::<Parcel>().send(&a, Lose).await.unwrap();
    bed.run_until_idle().await;
    bed.machine::<Parcel>().retry(&heavy).await.unwrap();
    bed.run_until_idle().await;
    bed.machine::<Parcel>().cancel(&heavy, "nobody carries it").await.unwrap();
    bed.run_until_idle().await;
    let gathered = orders.get("o-1").await.unwrap().unwrap();
    let expected = [
        format!("{heavy} failed"),
        format!("{b} completed in handed"),
        format!("{a} completed in lost"),
        format!("{heavy} failed"),
        format!("{heavy} cancelled in nowhere"),
        "all 3".to_owned(),
    ];
    assert_eq!(gathered.record.lines, expected);
    assert_eq!(gathered.status, Status::Completed);
}

/// The number of successful attempts of its first verb.
async fn starts(bed: &TestBed, key: &str) -> usize {
    let history = bed.machine::<Parcel>().history(key).await.unwrap();
    let is_start = |entry: &&HistoryEntry| matches!(&entry.event, HistoryEvent::Attempt { verb, state, .. } if verb == "packed" && *state == AttemptState::Success);
    history.iter().filter(is_start).count()
}

/// A key of this form in a partition of two.
fn key_of_two(form: &str, partition: u32) -> String {
    (0..).map(|n| format!("{form}-{n}")).find(|key| partition_of(key, 2) == partition).unwrap()
}

#[tokio::test]
async fn a_crash_at_any_point_starts_each_child_once_and_counts_its_end_once() {
    let bed = family().partitions(2).await;
    let (orders, parcels) = (bed.machine::<Gathering>(), bed.machine::<Parcel>());
    // A third of the statements are tried.
    for crash in (0..).step_by(5) {
        let (order, children) = (key_of_two(&format!("o-{crash}"), 0), ["a", "b"].map(|name| key_of_two(&format!("{name}-{crash}"), 1)));
        let died = bed.crash_after_statements(crash, async {
            orders.send(&order, Gather { parcels: children.to_vec() }).await.unwrap();
            bed.run_until_idle().await;
            for child in &children {
                parcels.send(child, Deliver).await.unwrap();
            }
            bed.run_until_idle().await;
        });
        let died = died.await;
        // The attempts of the dead process are lost when its lease ends, and so does its claim of the notices.
        bed.advance(Duration::from_secs(120)).await;
        if orders.get(&order).await.unwrap().is_some() {
            // A lost attempt is in error, because the verbs are not retried.
            for _ in 0..4 {
                if orders.get(&order).await.unwrap().unwrap().status == Status::Error {
                    orders.retry(&order).await.unwrap();
                }
                bed.run_until_idle().await;
                if orders.get(&order).await.unwrap().unwrap().status == Status::Completed {
                    break;
                }
                for child in &children {
                    let there = parcels.get(child).await.unwrap().unwrap_or_else(|| panic!("{child} is lost: {crash} statements"));
                    match there.status {
                        Status::Error => parcels.retry(child).await.unwrap(),
                        Status::Running => drop(parcels.send(child, Deliver).await.unwrap()),
                        _ => {}
                    }
                }
                bed.run_until_idle().await;
            }
            bed.advance(Duration::from_secs(120)).await;
            let gathered = orders.get(&order).await.unwrap().unwrap();
            let mut lines = gathered.record.lines.clone();
            lines.retain(|line| !line.ends_with(" failed"));
            assert_eq!(lines.pop().as_deref(), Some("all 2"), "death after {crash} statements: {gathered:?}");
            lines.sort();
            assert_eq!(lines, children.clone().map(|child| format!("{child} completed in handed")), "death after {crash} statements");
            assert_eq!(gathered.status, Status::Completed);
            for child in &children {
                assert_eq!(starts(&bed, child).await, 1, "death after {crash} statements");
            }
        } else {
            assert!(parcels.get(&children[0]).await.unwrap().is_none(), "death after {crash} statements");
        }
        if !died {
            assert!(crash > 60, "there are more than {crash} statements");
            return;
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_point_of_a_cancellation_cancels_the_children() {
    let bed = family().partitions(2).await;
    let orders = bed.machine::<Order>();
    for crash in (0..).step_by(5) {
        let (order, children) = (key_of_two(&format!("o-{crash}"), 0), ["a", "b"].map(|name| key_of_two(&format!("{name}-{crash}"), 1)));
        orders.send(&order, ship_to(&[&children[0], &children[1]])).await.unwrap();
        // Some of the children are not started yet when their parent is cancelled.
        if crash % 2 == 0 {
            bed.run_until_idle().await;
        } else {
            orders.settled(&order).within(Duration::from_secs(5)).await.unwrap();
        }
        let died = bed.crash_after_statements(crash, async {
            orders.cancel(&order, "the customer died").await.unwrap();
            bed.run_until_idle().await;
        });
        let died = died.await;
        bed.advance(Duration::from_secs(120)).await;
        let status = orders.get(&order).await.unwrap().unwrap().status;
        for child in &children {
            assert_eq!(parcel(&bed, child).await.1, status, "death after {crash} statements");
        }
        if !died {
            assert_eq!(status, Status::Cancelled);
            assert!(crash > 20, "there are more than {crash} statements");
            return;
        }
    }
}

#[tokio::test]
async fn a_child_whose_key_is_taken_in_another_partition_counts_as_cancelled() {
    let bed = bed().await;
    let [a, b, _] = elsewhere("p");
    let parcels = bed.machine::<Parcel>();
    parcels.send(&a, Pack::default()).await.unwrap();
    bed.run_until_idle().await;
    let orders = bed.machine::<Order>();
    orders.send("o-1", ship_to(&[&a, &b])).await.unwrap();
    let gathering = bed.machine::<Gathering>();
    gathering.send("o-1", Gather { parcels: vec![a.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    hand(&bed, &[&b]).await;
    assert_eq!(order(&orders).await.2, [format!("shipping: 1 delivered, 0 lost, 1 cancelled, {b}")]);
    assert_eq!(parcel(&bed, &a).await, (Some(ParcelState::Packed), Status::Running), "it has another owner");
    let timeline = timeline(&orders, "o-1").await;
    assert!(timeline.iter().any(|line| line.contains("the child is not started") && line.contains(&a)), "{timeline:#?}");
    let gathered = gathering.get("o-1").await.unwrap().unwrap();
    assert_eq!(gathered.record.lines, [format!("{a} cancelled in nowhere"), "all 1".to_owned()]);
    // Its owner is not cancelled with a parent that could not start it.
    assert_eq!(parcel(&bed, &a).await.1, Status::Running);
}

#[tokio::test]
async fn a_parent_that_is_cancelled_before_its_children_are_started_cancels_them() {
    let bed = bed().await;
    let [a, b, taken] = elsewhere("p");
    let parcels = bed.machine::<Parcel>();
    parcels.send(&taken, Pack::default()).await.unwrap();
    bed.run_until_idle().await;
    let orders = bed.machine::<Order>();
    orders.send("o-1", ship_to(&[&a, &b, &taken])).await.unwrap();
    orders.settled("o-1").within(Duration::from_secs(5)).await.unwrap();
    assert!(parcels.get(&a).await.unwrap().is_none(), "nothing was delivered yet");
    orders.cancel("o-1", "the customer died").await.unwrap();
    bed.run_until_idle().await;
    for key in [&a, &b] {
        assert_eq!(parcel(&bed, key).await.1, Status::Cancelled, "{key}");
        let timeline = timeline(&parcels, key).await;
        assert!(timeline.iter().any(|line| line.contains("its parent `family-order` `o-1` was cancelled")), "{timeline:#?}");
    }
    assert_eq!(parcel(&bed, &taken).await.1, Status::Running, "it is not a child of the order");
}

#[tokio::test]
async fn a_cancelled_parent_cancels_grandchildren_and_no_detached_child() {
    let bed = bed().await;
    let orders = bed.machine::<Order>();
    let home = partition_of("o-1", PARTITIONS);
    // The child is in another partition than its parent, and so is the child of the child.
    let nest = (0..).map(|n| format!("nest-{n}")).find(|key| {
        let (child, inner) = (partition_of(key, PARTITIONS), partition_of(&format!("in-{key}"), PARTITIONS));
        child != home && inner != child
    });
    let nest = nest.unwrap();
    orders.send("o-1", ship_to(&[&nest])).await.unwrap();
    bed.run_until_idle().await;
    let [detached, ..] = elsewhere("p");
    let key = (0..).map(|n| format!("o-2{n}")).find(|key| partition_of(key, PARTITIONS) == home).unwrap();
    orders.send(&key, Ship { detached: true, ..ship_to(&[&detached]) }).await.unwrap();
    bed.run_until_idle().await;
    orders.cancel("o-1", "the customer died").await.unwrap();
    orders.cancel(&key, "the customer died").await.unwrap();
    bed.restart().await;
    bed.run_until_idle().await;
    assert_eq!(parcel(&bed, &nest).await.1, Status::Cancelled);
    assert_eq!(parcel(&bed, &format!("in-{nest}")).await.1, Status::Cancelled);
    assert_eq!(parcel(&bed, &detached).await.1, Status::Running);
    hand(&bed, &[&detached]).await;
    let late = timeline(&bed.machine::<Parcel>(), &detached).await;
    assert!(late.iter().any(|line| line.contains("its parent had ended before")), "{late:#?}");
}

#[tokio::test]
async fn a_parent_that_leaves_the_state_and_its_late_child_elsewhere_have_it_in_their_histories() {
    let bed = bed().await;
    let [a, b, _] = elsewhere("p");
    let orders = bed.machine::<Gathering>();
    orders.send("o-1", Gather { parcels: vec![a.clone(), b.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    orders.send("o-1", Abandon).await.unwrap();
    bed.run_until_idle().await;
    hand(&bed, &[&a, &b]).await;
    let left = timeline(&orders, "o-1").await;
    assert!(left.iter().any(|line| line.contains("`gathering` was left before the children")), "{left:#?}");
    assert!(left.iter().any(|line| line.contains("not `ChildEnded<Parcel>`")), "{left:#?}");
    assert_eq!(orders.get("o-1").await.unwrap().unwrap().state, Some(GatheringState::Stopped));
    for key in [&a, &b] {
        let late = timeline(&bed.machine::<Parcel>(), key).await;
        let notes = late.iter().filter(|line| line.contains("its parent had left the state in which it was started")).count();
        assert_eq!(notes, 1, "{late:#?}");
    }
}

#[tokio::test]
async fn children_outlive_a_parent_that_was_deleted_and_ended_children_are_deleted_before_their_parent() {
    let bed = family().with(|builder| builder.retention(Duration::from_secs(24 * 3600))).partitions(PARTITIONS).await;
    let ([a, b, _], two_days) = (elsewhere("p"), Duration::from_secs(48 * 3600));
    let (orders, parcels) = (shipped(&bed, []).await, bed.machine::<Parcel>());
    orders.send("o-1", Extend { parcels: vec![a.clone(), b.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    hand(&bed, &[&a]).await;
    bed.advance(two_days).await;
    assert!(parcels.get(&a).await.unwrap().is_none(), "it ended, and its parent knows it");
    // It is the same child still.
    orders.send("o-1", Extend { parcels: vec![a.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    assert!(parcels.get(&a).await.unwrap().is_none());
    let counts = orders.get("o-1").await.unwrap().unwrap().children;
    assert_eq!(
        counts.iter().map(|count| (count.state.as_deref(), count.status, count.count)).collect::<Vec<_>>(),
        [(None, Status::Running, 1), (Some("handed"), Status::Completed, 1)]
    );
    orders.send("o-1", Abandon).await.unwrap();
    bed.advance(two_days).await;
    assert!(orders.get("o-1").await.unwrap().is_none());
    assert!(parcels.get(&b).await.unwrap().unwrap().parent.is_none(), "it was deleted");
    hand(&bed, &[&b]).await;
    let late = timeline(&parcels, &b).await;
    assert!(late.iter().any(|line| line.contains("its parent no longer exists")), "{late:#?}");
    bed.advance(two_days).await;
    assert!(parcels.get(&b).await.unwrap().is_none());
}

#[tokio::test]
async fn a_child_elsewhere_that_was_started_in_the_same_state_is_the_same_child() {
    let bed = bed().await;
    let [a, b, _] = elsewhere("p");
    let orders = shipped(&bed, []).await;
    for _ in 0..2 {
        orders.send("o-1", Extend { parcels: vec![a.clone(), b.clone()] }).await.unwrap();
        bed.run_until_idle().await;
        bed.restart().await;
    }
    hand(&bed, &[&a, &b]).await;
    let (_, _, lines) = order(&bed.machine::<Order>()).await;
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("shipping: 2 delivered, 0 lost, 0 cancelled"), "{lines:?}");
}

#[tokio::test]
async fn an_instance_shows_its_parent_and_its_children_in_other_partitions() {
    let bed = bed().await;
    let [a, b, _] = elsewhere("p");
    let orders = shipped(&bed, []).await;
    orders.send("o-1", Extend { parcels: vec![a.clone(), b.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    hand(&bed, &[&a]).await;
    let order = orders.get("o-1").await.unwrap().unwrap();
    let counts: Vec<_> = order.children.iter().map(|count| (count.state.as_deref(), count.status, count.count)).collect();
    assert_eq!(counts, [(None, Status::Running, 1), (Some("handed"), Status::Completed, 1)]);
    let parcels = bed.machine::<Parcel>();
    let parent = parcels.get(&b).await.unwrap().unwrap().parent.unwrap();
    assert_eq!(
        (&*parent.machine, &*parent.key, parent.state.as_deref(), parent.status),
        ("family-order", "o-1", Some("shipping"), Status::Running)
    );
    let listed = parcels.list(Filter::default().parent(order.id)).await.unwrap();
    assert_eq!(listed.items.len(), 2);
}

#[tokio::test]
async fn the_console_links_a_child_and_its_parent_in_another_partition() {
    let bed = bed().await;
    let [child, ..] = elsewhere("p");
    shipped(&bed, []).await.send("o-1", Extend { parcels: vec![child.clone()] }).await.unwrap();
    bed.run_until_idle().await;
    let browser = Browser::of(console(&bed).authorize(|_| Access::Admin.named("ada")));
    let page = |machine: &str, key: &str| format!("/partition/{}/i/{machine}/{key}", partition_of(key, PARTITIONS));
    let (parent, child) = (page("family-order", "o-1"), page("family-parcel", &child));
    for (at, link) in [(&parent, &child), (&child, &parent)] {
        let shown = browser.get(at).await;
        assert_eq!(shown.status, 200, "{at}");
        assert!(shown.text.contains(&format!("href=\"/fsm{link}\"")), "{link}: {}", shown.text);
    }
}

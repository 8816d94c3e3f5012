//! An instance starts children with its transition, and is called once when all of them have ended.

use fsm::prelude::*;

use crate::family::{
    Abandon, Deliver, Extend, Gather, Gathering, Lose, Order, OrderState, Pack, Parcel, ParcelState, Remark, Ship, family, hand, order,
    ship, shipped, timeline,
};
use crate::support::promise;

promise! {
    async fn the_edge_of_children_ended_is_taken_when_the_last_child_has_ended(bed in family()) {
        let orders = shipped(bed, ["p-1", "p-2", "p-3"]).await;
        let parcels = bed.machine::<Parcel>();
        hand(bed, &["p-2"]).await;
        parcels.send("p-1", Lose).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await, (Some(OrderState::Shipping), Status::Running, vec![]), "one parcel is on its way");
        parcels.cancel("p-3", "it burnt").await.unwrap();
        bed.run_until_idle().await;
        let line = "shipping: 1 delivered, 1 lost, 1 cancelled, p-1 p-2 p-3".to_owned();
        assert_eq!(order(&orders).await, (Some(OrderState::Delivered), Status::Running, vec![line]));
    }
}

promise! {
    async fn children_are_started_if_and_only_if_the_transition_is_committed(bed in family()) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Ship { failures: 1, ..ship(["p-1"]) }).await.unwrap();
        bed.run_until_idle().await;
        let parcels = bed.machine::<Parcel>();
        assert!(parcels.get("p-1").await.unwrap().is_none(), "the first attempt failed");
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(parcels.get("p-1").await.unwrap().unwrap().state, Some(ParcelState::Packed));
    }
}

promise! {
    async fn a_child_in_error_has_not_ended(bed in family()) {
        let orders = shipped(bed, ["p-1", "heavy"]).await;
        hand(bed, &["p-1"]).await;
        let parcels = bed.machine::<Parcel>();
        assert_eq!(parcels.get("heavy").await.unwrap().unwrap().status, Status::Error);
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping));
        parcels.cancel("heavy", "nobody carries it").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await.2, ["shipping: 1 delivered, 0 lost, 1 cancelled, heavy p-1"]);
    }
}

promise! {
    async fn children_of_an_internal_transition_belong_to_the_state(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.send("o-1", Extend { parcels: vec!["p-2".into()] }).await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-1"]).await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping), "the parcel that was added is on its way");
        hand(bed, &["p-2"]).await;
        assert_eq!(order(&orders).await.2, ["shipping: 2 delivered, 0 lost, 0 cancelled, p-1 p-2"]);
    }
}

promise! {
    async fn a_transition_that_starts_no_child_is_not_followed_by_the_edge(bed in family()) {
        let orders = shipped(bed, []).await;
        assert_eq!(order(&orders).await, (Some(OrderState::Shipping), Status::Running, vec![]));
    }
}

promise! {
    async fn a_busy_parent_takes_the_end_of_its_children_when_it_comes_to_rest(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.send("o-1", Remark { failures: 1 }).await.unwrap();
        orders.send("o-1", Remark { failures: 1 }).await.unwrap();
        hand(bed, &["p-1"]).await;
        let busy = orders.get("o-1").await.unwrap().unwrap();
        assert_eq!((busy.state, busy.inbox_len), (Some(OrderState::Shipping), 1), "the end takes no place in the inbox");
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping), "the second remark was there before");
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Delivered));
    }
}

promise! {
    async fn a_paused_parent_takes_the_end_of_its_children_when_it_is_resumed(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.pause("o-1").await.unwrap();
        hand(bed, &["p-1"]).await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping));
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Delivered));
    }
}

promise! {
    async fn a_parent_in_error_takes_the_end_of_its_children_when_it_goes_on(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.send("o-1", Remark { failures: 9 }).await.unwrap();
        bed.advance(Duration::from_secs(15)).await;
        assert_eq!(order(&orders).await.1, Status::Error);
        hand(bed, &["p-1"]).await;
        assert_eq!(order(&orders).await.1, Status::Error);
        orders.skip("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Delivered));
    }
}

promise! {
    async fn a_key_that_is_taken_fails_the_attempt_and_is_named(bed in family()) {
        let orders = bed.machine::<Order>();
        bed.machine::<Parcel>().send("p-2", Pack::default()).await.unwrap();
        orders.send("o-1", ship(["p-1", "p-2"])).await.unwrap();
        bed.advance(Duration::from_secs(15)).await;
        let failed = orders.get("o-1").await.unwrap().unwrap();
        let error = failed.error.unwrap();
        assert!(error.contains("`family-parcel` `p-2` cannot be started"), "{error}");
        assert!(bed.machine::<Parcel>().get("p-1").await.unwrap().is_none(), "all or nothing");
    }
}

promise! {
    async fn a_child_that_was_started_in_the_same_state_is_the_same_child(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.send("o-1", Extend { parcels: vec!["p-1".into(), "p-2".into()] }).await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-1", "p-2"]).await;
        assert_eq!(order(&orders).await.2, ["shipping: 2 delivered, 0 lost, 0 cancelled, p-1 p-2"]);
    }
}

promise! {
    async fn a_parent_that_leaves_the_state_and_its_late_child_have_it_in_their_histories(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        orders.send("o-1", Abandon).await.unwrap();
        bed.run_until_idle().await;
        let left = timeline(&orders, "o-1").await;
        assert!(left.iter().any(|line| line.contains("`shipping` was left before the children")), "{left:#?}");
        hand(bed, &["p-1"]).await;
        let late = timeline(&bed.machine::<Parcel>(), "p-1").await;
        assert!(late.iter().any(|line| line.contains("its parent had ended before")), "{late:#?}");
        assert_eq!(order(&orders).await, (Some(OrderState::Abandoned), Status::Completed, vec![]));
    }
}

promise! {
    async fn the_parent_is_called_once_although_processes_end_and_start(bed in family()) {
        let orders = shipped(bed, ["p-1", "p-2"]).await;
        let parcels = bed.machine::<Parcel>();
        hand(bed, &["p-1"]).await;
        parcels.send("p-2", Deliver).await.unwrap();
        parcels.settled("p-2").within(Duration::from_secs(5)).await.unwrap();
        // Nobody has asked yet whether all have ended.
        bed.restart().await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping));
        bed.run_until_idle().await;
        bed.restart().await;
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await.2.len(), 1);
    }
}

promise! {
    async fn cancelling_a_parent_cancels_its_children_and_theirs(bed in family()) {
        let parcels = bed.machine::<Parcel>();
        let inner: Vec<_> = (0..300).map(|n| format!("inner-{n}")).collect();
        parcels.send("outer", Pack { inner, fails: false }).await.unwrap();
        bed.run_until_idle().await;
        parcels.send("inner-7", Deliver).await.unwrap();
        let orders = shipped(bed, ["p-1", "heavy"]).await;
        orders.send("o-1", Extend { parcels: vec!["p-2".into()] }).await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-2"]).await;
        orders.cancel("o-1", "the customer died").await.unwrap();
        parcels.cancel("outer", "it burnt").await.unwrap();
        bed.run_until_idle().await;
        let statuses = async |status| parcels.list(Filter::default().status(status).limit(1000)).await.unwrap().items.len();
        assert_eq!(statuses(Status::Running).await, 0);
        assert_eq!((statuses(Status::Completed).await, statuses(Status::Cancelled).await), (2, 302));
        let timeline = timeline(&parcels, "heavy").await;
        assert!(timeline.iter().any(|line| line.contains("its parent `family-order` `o-1` was cancelled")), "{timeline:#?}");
    }
}

promise! {
    async fn a_cancellation_that_a_crash_interrupted_goes_on(bed in family()) {
        let orders = shipped(bed, ["p-1", "p-2"]).await;
        orders.cancel("o-1", "the customer died").await.unwrap();
        let parcels = bed.machine::<Parcel>();
        assert_eq!(parcels.get("p-1").await.unwrap().unwrap().status, Status::Running);
        bed.restart().await;
        bed.run_until_idle().await;
        assert_eq!(parcels.get("p-1").await.unwrap().unwrap().status, Status::Cancelled);
        assert_eq!(parcels.get("p-2").await.unwrap().unwrap().status, Status::Cancelled);
    }
}

promise! {
    async fn a_detached_child_goes_on_when_its_parent_is_cancelled(bed in family()) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Ship { detached: true, ..ship(["p-1"]) }).await.unwrap();
        bed.run_until_idle().await;
        orders.cancel("o-1", "the customer died").await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-1"]).await;
        let parcel = bed.machine::<Parcel>().get("p-1").await.unwrap().unwrap();
        assert_eq!((parcel.state, parcel.status), (Some(ParcelState::Handed), Status::Completed));
    }
}

promise! {
    async fn the_end_of_detached_children_is_awaited_too(bed in family()) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Ship { detached: true, ..ship(["p-1"]) }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Shipping));
        hand(bed, &["p-1"]).await;
        assert_eq!(order(&orders).await.0, Some(OrderState::Delivered));
    }
}

promise! {
    async fn a_parent_hears_of_each_child_that_ends_and_of_each_that_fails_if_its_edges_accept_it(bed in family()) {
        let orders = bed.machine::<Gathering>();
        let gather = Gather { parcels: ["p-1", "p-2", "heavy"].map(str::to_owned).into() };
        orders.send("g-1", gather).await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-2"]).await;
        bed.machine::<Parcel>().send("p-1", Lose).await.unwrap();
        bed.run_until_idle().await;
        bed.machine::<Parcel>().cancel("heavy", "nobody carries it").await.unwrap();
        bed.run_until_idle().await;
        let gathered = orders.get("g-1").await.unwrap().unwrap();
        let expected = ["heavy failed", "p-2 completed in handed", "p-1 completed in lost", "heavy cancelled in nowhere", "all 3"];
        assert_eq!(gathered.record.lines, expected);
        assert_eq!(gathered.status, Status::Completed);
    }
}

promise! {
    async fn an_end_that_no_edge_of_the_present_state_accepts_is_recorded_as_rejected(bed in family()) {
        let orders = bed.machine::<Gathering>();
        orders.send("g-1", Gather { parcels: vec!["p-1".into()] }).await.unwrap();
        bed.run_until_idle().await;
        orders.send("g-1", Abandon).await.unwrap();
        bed.run_until_idle().await;
        hand(bed, &["p-1"]).await;
        let timeline = timeline(&orders, "g-1").await;
        assert!(timeline.iter().any(|line| line.contains("not `ChildEnded<Parcel>`")), "{timeline:#?}");
    }
}

promise! {
    async fn a_caller_cannot_send_the_events_of_children(bed in family()) {
        let orders = shipped(bed, ["p-1"]).await;
        for event in ["ChildrenEnded", "ChildEnded<Parcel>", "ChildFailed<Parcel>"] {
            let error = orders.send_json("o-1", event, ()).await.unwrap_err();
            assert!(error.to_string().contains("nobody sends it"), "{error}");
        }
    }
}

promise! {
    async fn an_instance_shows_its_parent_and_the_numbers_of_its_children(bed in family()) {
        let orders = shipped(bed, ["p-1", "p-2", "heavy"]).await;
        hand(bed, &["p-1"]).await;
        let parcels = bed.machine::<Parcel>();
        let order = orders.get("o-1").await.unwrap().unwrap();
        let counted = |state: Option<&str>, status, count| fsm::ChildCount { machine: "family-parcel".into(), state: state.map(str::to_owned), status, count };
        // A parent in another partition is told of an error only if its machine has a verb for it.
        let failed = if bed.partitions() == 1 { Status::Error } else { Status::Running };
        let mut counts = [counted(None, failed, 1), counted(Some("handed"), Status::Completed, 1), counted(Some("packed"), Status::Running, 1)];
        let mut children = order.children.clone();
        counts.sort_by_key(|count| count.state.clone());
        children.sort_by_key(|count| count.state.clone());
        assert_eq!(children, counts);
        assert_eq!(order.parent, None);
        let parent = parcels.get("p-1").await.unwrap().unwrap().parent.unwrap();
        assert_eq!((&*parent.machine, &*parent.key, parent.state.as_deref(), parent.status), ("family-order", "o-1", Some("shipping"), Status::Running));
        let listed = parcels.list(Filter::default().parent(order.id).status(Status::Running)).await.unwrap();
        assert_eq!(listed.items.iter().map(|parcel| &*parcel.key).collect::<Vec<_>>(), ["p-2"]);
        let error = parcels.list(Filter::default().parent(order.id).field("customer", 7)).await.unwrap_err();
        assert!(error.is_input(), "{error}");
    }
}

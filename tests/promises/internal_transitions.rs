//! Internal transitions: an event runs a verb, and the instance stays in its state.

use fsm::prelude::*;

use crate::subscription::{
    AddressChanged, CardUpdated, DAY, HOUR, Note, Renew, Reset, Step, SubState, activated, attempts, state, subs, timeline,
};
use crate::support::promise;

fn card(failures: u32) -> CardUpdated {
    CardUpdated { card: "4242".into(), failures }
}

promise! {
    async fn an_internal_transition_runs_its_verb_and_stays_in_the_state(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", card(0)).await.unwrap();
        subs.send("s-1", AddressChanged).await.unwrap();
        subs.send("s-1", Note { text: "a friend".into() }).await.unwrap();
        bed.run_until_idle().await;
        let sub = subs.get("s-1").await.unwrap().unwrap();
        assert_eq!((sub.state, sub.status, sub.version), (Some(SubState::Active), Status::Running, 5));
        assert_eq!(sub.record.notes, ["4242 in active", "moved", "a friend"]);
        let timeline = timeline(&subs, "s-1").await;
        assert!(timeline.contains(&"stays in `active`".to_owned()), "{timeline:?}");
    }
}

promise! {
    async fn an_internal_transition_does_not_move_the_timer_of_its_state(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        bed.advance(10 * DAY).await;
        subs.send("s-1", card(0)).await.unwrap();
        bed.advance(4 * DAY - HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Active));
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await, (Some(SubState::Expired), Status::Completed));
    }
}

promise! {
    async fn a_timer_that_runs_out_during_an_internal_transition_fires_after_it(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        bed.advance(13 * DAY).await;
        subs.send("s-1", card(1)).await.unwrap();
        bed.advance(2 * DAY - HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Active), "the call waits for its retry");
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Expired));
    }
}

promise! {
    async fn an_internal_transition_is_retried_by_the_policy_of_its_verb(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", card(2)).await.unwrap();
        bed.advance(4 * DAY).await;
        let of_the_card: Vec<_> = attempts(&subs, "s-1").await.into_iter().filter(|(verb, ..)| verb == "card_updated").collect();
        let expected = [(1, AttemptState::Error), (2, AttemptState::Error), (3, AttemptState::Success)];
        assert_eq!(of_the_card, expected.map(|(number, state)| ("card_updated".to_owned(), number, state)));
        assert_eq!(subs.get("s-1").await.unwrap().unwrap().record.notes, ["4242 in active"]);

        subs.send("s-1", card(9)).await.unwrap();
        bed.advance(4 * DAY).await;
        assert_eq!(state(&subs, "s-1").await, (Some(SubState::Active), Status::Error));
        subs.retry("s-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(state(&subs, "s-1").await, (Some(SubState::Active), Status::Running), "the retry is attempt 4");
    }
}

promise! {
    async fn a_self_edge_leaves_the_state_and_enters_it_again_so_that_its_timer_starts_anew(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", Reset).await.unwrap();
        bed.advance(DAY).await;
        subs.send("s-1", Reset).await.unwrap();
        bed.advance(2 * DAY - HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Reset));
        bed.advance(HOUR).await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Expired));
    }
}

promise! {
    async fn events_wait_for_an_internal_transition_and_it_waits_for_them(bed in subs()) {
        let subs = activated(bed, "s-1").await;
        subs.send("s-1", card(1)).await.unwrap();
        bed.run_until_idle().await;
        subs.send("s-1", Note { text: "first".into() }).await.unwrap();
        subs.send("s-1", Renew::default()).await.unwrap();
        subs.send("s-1", Note { text: "second".into() }).await.unwrap();
        bed.advance(2 * DAY).await;
        let sub = subs.get("s-1").await.unwrap().unwrap();
        assert_eq!((sub.state, sub.inbox_len), (Some(SubState::Renewed), 0));
        assert_eq!(sub.record.notes, ["4242 in active", "first", "second"]);
        assert!(subs.send("s-1", card(0)).await.unwrap_err().is_refused(), "no internal transition of `renewed` takes it");
    }
}

promise! {
    async fn a_start_may_share_its_event_type_with_edges(bed in subs()) {
        let subs = bed.machine::<crate::subscription::Sub>();
        subs.send("s-1", Step { trial_days: 3 }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(state(&subs, "s-1").await.0, Some(SubState::Opened));
        subs.send("s-1", Step { trial_days: 4 }).await.unwrap();
        bed.run_until_idle().await;
        let sub = subs.get("s-1").await.unwrap().unwrap();
        assert_eq!((sub.state, sub.record.trial_days), (Some(SubState::Active), 4));
        assert!(subs.send("s-1", Step { trial_days: 5 }).await.unwrap_err().is_refused(), "`active` does not take it");
    }
}

//! Each accepted event moves its instance at most once, even if the same request is sent twice or the same key is used concurrently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::{AttemptState, SendOutcome};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::payment::{Gateway, Payment, PaymentState, checkout, failing, paid_with, watched};
use crate::support::promise;

promise! {
    async fn the_same_dedup_id_again_gives_the_first_answer(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let first = payments.send("o-1", checkout()).dedup("stripe-evt-77").await.unwrap();
        let again = payments.send("o-1", checkout()).dedup("stripe-evt-77").await.unwrap();
        assert_eq!((first.outcome, again.outcome, first.call, first.instance), (SendOutcome::Started, SendOutcome::Duplicate, again.call, again.instance));
        let other = payments.send("o-1", paid_with("r")).dedup("stripe-evt-77").await.unwrap_err();
        assert!(other.is_conflict(), "{other}");
        bed.run_until_idle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().version, 1);
    }
}

promise! {
    async fn many_senders_to_one_new_key_create_it_once(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let sends = (0..50).map(|_| tokio::spawn(payments.send("o-1", checkout()).into_future()));
        let mut started = 0;
        for send in sends.collect::<Vec<_>>() {
            match send.await.unwrap() {
                Ok(sent) => started += usize::from(sent.outcome == SendOutcome::Started),
                Err(refused) => assert!(refused.is_refused(), "{refused}"),
            }
        }
        bed.run_until_idle().await;
        assert_eq!((started, payments.get("o-1").await.unwrap().unwrap().version), (1, 1));
    }
}

mod the_idempotency_key_is_the_same_for_all_attempts_of_a_call {
    use super::*;

    async fn check(bed: fsm::testing::TestBed, gateway: Arc<Gateway>) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(Duration::from_secs(86_400)).await;
        payments.retry("o-1").await.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        assert_eq!(gateway.called(), (13, 1), "eleven attempts, and two after the manual retry, with one key");
        assert_eq!(payments.attempts("o-1").await.unwrap().iter().filter(|attempt| attempt.state == AttemptState::Success).count(), 1);
        crate::support::assert_invariants_hold(&bed).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let gateway = Arc::new(Gateway::failing(12));
        check(watched(&gateway).sqlite().await, gateway).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let gateway = Arc::new(Gateway::failing(12));
        check(watched(&gateway).postgres().await, gateway).await;
    }
}

use std::future::IntoFuture;

/// Serialises its entries in its own order, as a `HashMap` does in a random one.
#[derive(Debug, Clone, PartialEq)]
struct Items(Vec<(&'static str, u32)>);

impl Serialize for Items {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items, D::Error> {
        HashMap::<String, u32>::deserialize(deserializer).map(|_| Items(Vec::new()))
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Packed {
    items: Items,
}

#[verb]
async fn packed(_event: Packed) -> Result {
    Ok(())
}

fsm! {
    machine Basket = "basket" {
        start packed;
        end packed;
    }
}

promise! {
    async fn the_same_map_in_another_order_is_the_same_content(bed in TestBed::builder().only::<Basket>()) {
        let baskets = bed.machine::<Basket>();
        let send = async |items: &[(&'static str, u32)]| {
            baskets.send("b-1", Packed { items: Items(items.to_vec()) }).dedup("order-7").await
        };
        assert_eq!(send(&[("pears", 2), ("figs", 1)]).await.unwrap().outcome, SendOutcome::Started);
        assert_eq!(send(&[("figs", 1), ("pears", 2)]).await.unwrap().outcome, SendOutcome::Duplicate);
        assert!(send(&[("figs", 2), ("pears", 1)]).await.unwrap_err().is_conflict());
    }
}

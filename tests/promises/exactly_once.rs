//! Each accepted event moves its instance at most once, even if the same request is sent twice or the same key is used concurrently.

use std::sync::Arc;
use std::time::Duration;

use fsm::{AttemptState, SendOutcome};

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

    async fn kept(bed: fsm::testing::TestBed, gateway: Arc<Gateway>) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(Duration::from_secs(86_400)).await;
        payments.retry("o-1").await.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        assert_eq!(gateway.called(), (13, 1), "eleven attempts, and two after the manual retry, with one key");
        assert_eq!(payments.attempts("o-1").await.unwrap().iter().filter(|attempt| attempt.state == AttemptState::Success).count(), 1);
        crate::support::healthy(&bed).await;
    }

    #[tokio::test]
    async fn sqlite() {
        let gateway = Arc::new(Gateway::failing(12));
        kept(watched(&gateway).sqlite().await, gateway).await;
    }

    #[tokio::test]
    async fn postgres() {
        let gateway = Arc::new(Gateway::failing(12));
        kept(watched(&gateway).postgres().await, gateway).await;
    }
}

use std::future::IntoFuture;

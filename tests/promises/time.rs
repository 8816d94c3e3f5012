//! Durable timers and delayed events: rows that wait, and cost nothing else.

use std::time::Duration;

use fsm::{Fate, Status};

use crate::payment::{OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

const HALF_AN_HOUR: Duration = Duration::from_secs(1800);

promise! {
    async fn a_timer_runs_out_while_the_instance_rests_in_its_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(HALF_AN_HOUR - Duration::from_secs(1)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
        bed.restart().await;
        bed.advance(Duration::from_secs(1)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.status), (Some(PaymentState::Expired), Status::Completed));
    }
}

promise! {
    async fn a_timer_dies_with_its_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        payments.send("o-1", paid_with("r")).await.unwrap();
        bed.advance(2 * HALF_AN_HOUR).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Paid));
    }
}

promise! {
    async fn an_exhausted_transition_holds_the_timer_back_and_skipping_it_lets_it_run_out(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.settle().await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.advance(2 * HALF_AN_HOUR).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Error);
        payments.skip("o-1").await.unwrap();
        bed.settle().await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Expired));
    }
}

promise! {
    async fn a_delayed_event_is_delivered_when_its_time_comes(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let sent = payments.send("o-1", checkout()).after(Duration::from_secs(60)).await.unwrap();
        assert_eq!(sent.fate, Fate::Scheduled);
        bed.advance(Duration::from_secs(59)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, None);
        bed.restart().await;
        bed.advance(Duration::from_secs(1)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));

        let at = bed.now() + Duration::from_secs(5);
        payments.send("o-1", OnlinePaymentCompleted).at(at).await.unwrap();
        bed.advance(Duration::from_secs(5)).await;
        let told: Vec<_> = payments.history("o-1").await.unwrap().iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|line| line.contains("rejected: `payment` `o-1` is in `created`")), "{told:#?}");
    }
}

//! Retries with counts and waits as `#[retry]` declares them.

use std::time::Duration;

use fsm::AttemptState::{self, Error, Success};
use fsm::{Status, Timestamp};

use crate::payment::{Payment, PaymentRecord, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

promise! {
    async fn a_failed_attempt_is_scheduled_again_by_its_policy(bed in failing(2)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        let call = payment.call.unwrap();
        assert_eq!((call.attempt, call.next_at - bed.now()), (2, secs(5)));
        assert_eq!((call.max_attempts, call.retries_left, call.last_error.as_deref()), (Some(11), Some(9), Some("the gateway is down, 2 to go")));
        assert_eq!((payment.state, payment.status), (None, Status::Running));

        bed.advance(secs(5)).await;
        let call = payments.get("o-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.next_at - bed.now()), (3, secs(10)));

        bed.advance(secs(10)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.record, payment.version), (Some(PaymentState::Created), PaymentRecord { authorised_cents: 12_00 }, 1));
        let states: Vec<_> = payments.attempts("o-1").await.unwrap().iter().map(|attempt| (attempt.number, attempt.state)).collect();
        assert_eq!(states, [(1, Error), (2, Error), (3, Success)]);
    }
}

promise! {
    async fn ten_retries_are_eleven_executions_and_then_the_instance_is_in_error(bed in failing(99)) {
        let payments = bed.machine::<Payment>();
        let begin = bed.now();
        payments.send("o-1", checkout()).await.unwrap();
        bed.advance(secs(86_400)).await;

        let attempts = payments.attempts("o-1").await.unwrap();
        let starts: Vec<Timestamp> = attempts.iter().map(|attempt| attempt.started_at.unwrap()).collect();
        let waits: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]);
        assert_eq!(starts[10] - begin, secs(3600 + 25 * 60 + 15));
        assert!(attempts.iter().all(|attempt| attempt.state == AttemptState::Error));

        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.state, payment.call), (Status::Error, None, None));
        assert_eq!(payment.error.as_deref(), Some("the gateway is down, 89 to go"));
    }
}

promise! {
    async fn exhausting_keeps_the_state_the_record_and_the_error(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        payments.send("o-1", paid_with("")).await.unwrap();
        bed.run_until_idle().await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.state), (Status::Error, Some(PaymentState::Created)));
        assert_eq!((payment.error.as_deref(), payment.record.authorised_cents, payment.version), (Some("no receipt"), 12_00, 1));
    }
}

promise! {
    async fn a_policy_is_copied_onto_the_call_and_shown(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let call = payments.get("o-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.verb.as_str(), call.event.as_str(), call.worker), ("created", "OnlinePaymentCreated", None));
        bed.restart().await;
        bed.advance(secs(5)).await;
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().state, Some(PaymentState::Created));
    }
}

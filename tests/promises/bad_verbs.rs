//! Failures inside an attempt: each is a failed attempt with a clear error, and the instance continues afterwards.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;

use crate::clumsy::{Clumsy, Deed, Tally, clumsy};
use crate::payment::{Payment, PaymentState, checkout, failing};
use crate::sql_runner::{SqlRunner, bytes, run};
use crate::support::promise;

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// Runs the deed with its one retry and returns the error that the instance has then. Afterwards the instance continues.
async fn error_of(bed: &TestBed, deed: Deed) -> String {
    let clumsies = bed.machine::<Clumsy>();
    clumsies.send("c", Deed::Nothing).await.unwrap();
    clumsies.send("c", deed).await.unwrap();
    bed.run_until_idle().await;
    let waiting = clumsies.get("c").await.unwrap().unwrap();
    let call = waiting.call.expect("a failed attempt is retried by policy");
    assert_eq!((waiting.status, call.attempt, call.next_at - bed.now()), (Status::Running, 2, FIVE_SECONDS));
    bed.advance(FIVE_SECONDS).await;
    let exhausted = clumsies.get("c").await.unwrap().unwrap();
    assert_eq!((exhausted.status, exhausted.version, exhausted.record), (Status::Error, 1, Tally { done: 1 }));
    assert_eq!(call.last_error, exhausted.error);

    clumsies.skip("c").await.unwrap();
    clumsies.send("c", Deed::Nothing).await.unwrap();
    bed.run_until_idle().await;
    let after = clumsies.get("c").await.unwrap().unwrap();
    assert_eq!((after.status, after.version, after.error), (Status::Running, 2, None));
    exhausted.error.expect("an instance in error has an error text")
}

promise! {
    async fn an_error_text_is_kept_without_nul_and_cut_at_8_kib(bed in clumsy()) {
        let kept = error_of(bed, Deed::Fail(format!("a\0b{}", "ä".repeat(100 * 1024)))).await;
        assert!(kept.starts_with("a\u{fffd}bää") && kept.len() <= 8 * 1024 && kept.len() > 8 * 1024 - 4, "{} bytes", kept.len());
    }
}

promise! {
    async fn an_error_text_of_1_mib_is_kept_in_part(bed in clumsy().with(|builder| builder.payload_limit(2 << 20))) {
        let kept = error_of(bed, Deed::Fail("e".repeat(1 << 20))).await;
        assert_eq!(kept, "e".repeat(8 * 1024));
    }
}

promise! {
    async fn a_panic_is_a_failed_attempt_with_its_text(bed in clumsy()) {
        assert_eq!(error_of(bed, Deed::Panic("all is lost\0".into())).await, "the verb panicked: all is lost\u{fffd}");
    }
}

promise! {
    async fn an_attempt_over_its_timeout_is_a_failed_attempt(bed in clumsy()) {
        assert_eq!(error_of(bed, Deed::Hang).await, "the attempt took longer than its timeout of 50ms");
    }
}

promise! {
    async fn a_payload_that_no_longer_decodes_is_a_failed_attempt(bed in failing(1).only::<SqlRunner>()) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let payload = async |text: &str| {
            let text = bytes(bed, text);
            run(bed, format!("update fsm_instances set payload = {text}, row_version = row_version + 1 where machine = 'payment' and payload is not null")).await
        };
        payload("{\"amount_cents\": \"much\"}").await;
        bed.advance(FIVE_SECONDS).await;
        let call = payments.get("o-1").await.unwrap().unwrap().call.unwrap();
        assert_eq!((call.attempt, call.next_at - bed.now()), (3, Duration::from_secs(10)), "it is retried by its policy");
        let error = call.last_error.unwrap();
        assert!(error.starts_with("the payload does not decode as `OnlinePaymentCreated`: invalid type: string \"much\""), "{error}");

        bed.advance(Duration::from_secs(86_400)).await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.status, payment.state), (Status::Error, None));
        payload("{\"amount_cents\": 7, \"card\": \"4242\"}").await;
        payments.retry("o-1").reason("the payload is mended").await.unwrap();
        bed.run_until_idle().await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.record.authorised_cents), (Some(PaymentState::Created), 7));
    }
}

promise! {
    async fn a_payload_that_is_gone_is_a_failed_attempt(bed in failing(1).only::<SqlRunner>()) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        run(bed, "update fsm_instances set payload = null, row_version = row_version + 1 where machine = 'payment'").await;
        bed.advance(FIVE_SECONDS).await;
        let error = payments.get("o-1").await.unwrap().unwrap().call.unwrap().last_error.unwrap();
        assert!(error.starts_with("the payload does not decode as `OnlinePaymentCreated`: EOF"), "{error}");
        payments.cancel("o-1", "it cannot be mended").await.unwrap();
        assert_eq!(payments.get("o-1").await.unwrap().unwrap().status, Status::Cancelled);
    }
}

promise! {
    async fn a_record_that_does_not_decode_is_a_failed_attempt(bed in clumsy().only::<SqlRunner>()) {
        let clumsies = bed.machine::<Clumsy>();
        clumsies.send("c", Deed::Nothing).await.unwrap();
        bed.run_until_idle().await;
        let record = async |text: &str| {
            let text = bytes(bed, text);
            run(bed, format!("update fsm_instances set record = {text}, row_version = row_version + 1 where machine = 'clumsy'")).await
        };
        record("[]").await;
        clumsies.send("c", Deed::Nothing).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        let attempts = clumsies.attempts("c").await.unwrap();
        assert_eq!(attempts.iter().map(|attempt| attempt.state).collect::<Vec<_>>(), [
            AttemptState::Success,
            AttemptState::Error,
            AttemptState::Error
        ]);
        let error = attempts[1].error.as_deref().unwrap();
        assert!(error.starts_with("the record does not decode as `Tally`: "), "{error}");
        let unseen = clumsies.get("c").await.unwrap_err();
        assert!(unseen.to_string().starts_with("the record of `clumsy` `c` does not decode: "), "{unseen}");

        record("{\"done\": 41}").await;
        clumsies.retry("c").await.unwrap();
        bed.run_until_idle().await;
        let instance = clumsies.get("c").await.unwrap().unwrap();
        assert_eq!((instance.status, instance.record.done, instance.version), (Status::Running, 42, 2));
    }
}

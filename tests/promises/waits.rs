//! `wait` returns when an instance is in a state or has ended, and returns an error as soon as that has become impossible.

use std::sync::Arc;
use std::time::Duration;

use fsm::{Client, Runtime, Status};

use crate::payment::{Cancel, Gateway, OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

const LIMIT: Duration = Duration::from_secs(60);

promise! {
    async fn a_wait_ends_in_the_state_that_it_is_for(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        let paid = payments.wait("o-1").for_state(PaymentState::Paid).within(LIMIT);
        let (paid, ()) = tokio::join!(paid.into_future(), async {
            payments.send("o-1", paid_with("r")).await.unwrap();
            bed.run_until_idle().await;
        });
        let paid = paid.unwrap();
        assert_eq!((paid.state, paid.version, paid.status), (Some(PaymentState::Paid), 2, Status::Running));
        let ended = payments.wait("o-1").for_end().within(LIMIT);
        let (ended, ()) = tokio::join!(ended.into_future(), async {
            payments.send("o-1", OnlinePaymentCompleted).await.unwrap();
            bed.run_until_idle().await;
        });
        let ended = ended.unwrap();
        assert_eq!((ended.state, ended.version, ended.status), (Some(PaymentState::Completed), 3, Status::Completed));
        let again = payments.wait("o-1").for_state(PaymentState::Completed).await.unwrap();
        assert_eq!(again.version, 3, "what is so already is not waited for");
    }
}

promise! {
    async fn a_wait_for_a_state_that_cannot_be_reached_any_more_is_an_error_at_once(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let wait = payments.wait("o-1").for_state(PaymentState::Paid);
        let (wait, _) = tokio::join!(wait.into_future(), async { payments.send("o-1", Cancel { by: "customer".into() }).await.unwrap() });
        let unreachable = wait.unwrap_err();
        assert!(unreachable.is_refused());
        assert_eq!(unreachable.to_string(), "`payment` `o-1` is completed in `cancelled` and cannot come to `paid`");

        payments.send("o-2", checkout()).await.unwrap();
        payments.send("o-2", paid_with("r")).await.unwrap();
        bed.run_until_idle().await;
        let passed = payments.wait("o-2").for_state(PaymentState::Failed).await.unwrap_err();
        assert_eq!(passed.to_string(), "`payment` `o-2` is running in `paid` and cannot come to `failed`");
        assert!(payments.wait("nobody").for_end().await.unwrap_err().is_not_found());
    }
}

promise! {
    async fn a_wait_whose_time_is_over_says_what_the_instance_does(bed in failing(20)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let late = payments.wait("o-1").for_end().within(Duration::from_millis(1)).await.unwrap_err();
        assert!(late.is_timed_out());
        let text = "`payment` `o-1` did not end within 1ms: attempt 2 of `created` is scheduled, for 2030-01-01T00:00:05Z";
        assert_eq!(late.to_string(), text);
        bed.advance(Duration::from_secs(7200)).await;
        let stuck = payments.wait("o-1").for_state(PaymentState::Created).within(Duration::from_millis(1)).await.unwrap_err();
        assert!(stuck.is_timed_out(), "an operator may retry it: {stuck}");
        let text = "`payment` `o-1` did not come to `created` within 1ms: is stuck until an operator acts: the gateway is down, 10 to go";
        assert_eq!(stuck.to_string(), text);
    }
}

/// A client in another process reads the database.
#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_wait_ends_by_what_another_process_commits() {
    let folder = crate::support::Folder::new("waits");
    let url = folder.url("fsm.db");
    let runtime = Runtime::builder().database(&url).only::<Payment>().data(Arc::new(Gateway::failing(0))).start().await.unwrap();
    let client = Client::connect(&url).await.unwrap();
    let (payments, elsewhere) = (runtime.machine::<Payment>(), client.machine::<Payment>());
    payments.send("o-1", checkout()).await.unwrap();
    elsewhere.wait("o-1").for_state(PaymentState::Created).within(LIMIT).await.unwrap();
    payments.send("o-1", Cancel { by: "customer".into() }).await.unwrap();
    let ended = elsewhere.wait("o-1").for_end().within(LIMIT).await.unwrap();
    assert_eq!(ended.state, Some(PaymentState::Cancelled));
    drop((payments, elsewhere, client));
    runtime.shutdown().await.unwrap();
}

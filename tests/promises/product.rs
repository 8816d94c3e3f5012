//! The program of the documentation, with the same text: it must compile and behave as described.

use std::time::Duration;

use fsm::{Runtime, SendOutcome, Status};

use crate::payment::{Cancel, Gateway, OnlinePaymentCompleted, OnlinePaymentFailed, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

promise! {
    async fn a_payment_goes_from_checkout_to_completion(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let sent = payments.send("order-1042", checkout()).await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Started);
        let payment = payments.settled("order-1042").within(Duration::from_secs(60)).await.unwrap();
        assert_eq!((payment.key.as_str(), payment.state, payment.status), ("order-1042", Some(PaymentState::Created), Status::Running));

        payments.send("order-1042", paid_with("r-1")).await.unwrap();
        payments.send("order-1042", OnlinePaymentCompleted).await.unwrap();
        let payment = payments.settled("order-1042").within(Duration::from_secs(60)).await.unwrap();
        assert_eq!((payment.state, payment.status, payment.version), (Some(PaymentState::Completed), Status::Completed, 3));
    }
}

promise! {
    async fn an_event_that_two_verbs_take_goes_by_the_state(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        for (key, is_paid) in [("o-1", false), ("o-2", true)] {
            payments.send(key, checkout()).await.unwrap();
            if is_paid {
                payments.send(key, paid_with("r")).await.unwrap();
            }
            payments.send(key, Cancel { by: "customer".into() }).await.unwrap();
        }
        bed.run_until_idle().await;
        let state = async |key: &str| payments.get(key).await.unwrap().unwrap().state;
        assert_eq!((state("o-1").await, state("o-2").await), (Some(PaymentState::Cancelled), Some(PaymentState::Refunding)));
    }
}

promise! {
    async fn an_event_that_does_not_fit_is_refused_at_once_and_the_error_says_what_would(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        payments.send("order-7", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let refused = payments.send("order-7", OnlinePaymentCompleted).await.unwrap_err();
        assert!(refused.is_refused());
        assert_eq!(
            refused.to_string(),
            "`payment` `order-7` is in `created` and takes `OnlinePaymentPaid`, `OnlinePaymentFailed` or `Cancel`, not `OnlinePaymentCompleted`"
        );
        let unborn = payments.send("order-8", OnlinePaymentFailed { reason: "none".into() }).await.unwrap_err();
        assert!(unborn.is_refused());
        assert!(payments.get("order-8").await.unwrap().is_none());
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_runtime_works_by_itself_from_start_to_shutdown() {
    let folder = std::env::temp_dir().join(format!("fsm-product-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite://{}/payments.db", folder.display());
    let runtime = Runtime::builder().database(&url).only::<Payment>().data(std::sync::Arc::new(Gateway::failing(0))).start().await.unwrap();
    let payments = runtime.machine::<Payment>();
    payments.send("order-1042", checkout()).await.unwrap();
    let payment = payments.settled("order-1042").within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(payment.state, Some(PaymentState::Created));
    runtime.shutdown().await.unwrap();

    let client = fsm::Client::connect(&url).await.unwrap();
    let seen = client.machine::<Payment>().get("order-1042").await.unwrap().unwrap();
    assert_eq!((seen.state, seen.version), (Some(PaymentState::Created), 1));
    drop(client);
    std::fs::remove_dir_all(&folder).unwrap();
}

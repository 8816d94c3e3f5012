//! Events by their name, with their content as JSON.

use std::collections::BTreeMap;

use fsm::SendOutcome;
use serde_json::json;

use crate::payment::{Payment, PaymentState, checkout, failing};
use crate::support::promise;

promise! {
    async fn an_event_by_its_name_is_taken_as_the_typed_one_is(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let content = json!({ "amount_cents": 1200, "card": "4242" });
        let sent = payments.send_json("o-1", "OnlinePaymentCreated", &content).dedup("evt-1").await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Started);
        let again = payments.send("o-1", checkout()).dedup("evt-1").await.unwrap();
        assert_eq!((again.outcome, again.call), (SendOutcome::Duplicate, sent.call), "both are the same content");
        payments.send_json("o-1", "OnlinePaymentPaid", BTreeMap::from([("receipt", "r")])).await.unwrap();
        bed.run_until_idle().await;
        let payment = payments.get("o-1").await.unwrap().unwrap();
        assert_eq!((payment.state, payment.record.authorised_cents), (Some(PaymentState::Paid), 1200));
    }
}

promise! {
    async fn an_unknown_name_or_content_is_an_error_that_says_what_fits(bed in failing(0)) {
        let payments = bed.machine::<Payment>();
        let unknown = payments.send_json("o-1", "OnlinePaymentPayed", json!({})).await.unwrap_err();
        assert!(unknown.is_input());
        let text = "`payment` has no event `OnlinePaymentPayed`; it takes `Cancel`, `OnlinePaymentCompleted`, `OnlinePaymentCreated`, \
            `OnlinePaymentFailed` and `OnlinePaymentPaid`; did you mean `OnlinePaymentPaid`?";
        assert_eq!(unknown.to_string(), text);
        let timer = payments.send_json("o-1", "Timeout", json!({ "state": "created", "due_at": 1 })).await.unwrap_err();
        assert!(timer.is_input(), "only the engine sends it: {timer}");
        let other = payments.send_json("o-1", "OnlinePaymentCreated", json!({ "amount_cents": -1 })).await.unwrap_err();
        assert!(other.is_input());
        assert!(other.to_string().starts_with("the content does not decode as `OnlinePaymentCreated`: "), "{other}");
        let refused = payments.send_json("o-1", "OnlinePaymentPaid", json!({ "receipt": "r" })).await.unwrap_err();
        assert!(refused.is_refused(), "{refused}");
        assert!(payments.get("o-1").await.unwrap().is_none());
    }
}

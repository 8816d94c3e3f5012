//! A watch returns an instance as it is, then each change of it, and ends when the instance ends; also in processes without workers.

use std::time::Duration;

use fsm::{AttemptState, Client, Runtime, Status};

use crate::payment::{Cancel, OnlinePaymentCompleted, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::promise;

promise! {
    async fn a_watch_shows_every_commit_of_this_process_in_order_and_ends_with_the_instance(bed in failing(1)) {
        let payments = bed.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        bed.run_until_idle().await;
        let mut watch = payments.watch("o-1");
        let first = watch.next().await.unwrap().unwrap();
        let call = first.call.unwrap();
        assert_eq!((first.state, call.attempt, call.state), (None, 2, AttemptState::Scheduled));
        assert_eq!(call.last_error.as_deref(), Some("the gateway is down, 1 to go"));

        bed.advance(Duration::from_secs(5)).await;
        payments.send("o-1", paid_with("r")).await.unwrap();
        payments.send("o-1", OnlinePaymentCompleted).await.unwrap();
        bed.run_until_idle().await;
        let mut seen = Vec::new();
        while let Some(payment) = watch.next().await {
            let payment = payment.unwrap();
            seen.push((payment.version, payment.state, payment.status));
        }
        seen.dedup();
        let running = |version, state| (version, Some(state), Status::Running);
        let all = [
            running(1, PaymentState::Created),
            running(2, PaymentState::Paid),
            (3, Some(PaymentState::Completed), Status::Completed),
        ];
        assert_eq!(seen, all);
        assert!(watch.next().await.is_none(), "a watch that has ended stays ended");
    }
}

promise! {
    async fn a_watch_of_an_unknown_key_says_so_and_ends(bed in failing(0)) {
        let mut watch = bed.machine::<Payment>().watch("o-1");
        let unknown = watch.next().await.unwrap().unwrap_err();
        assert!(unknown.is_not_found(), "{unknown}");
        assert!(watch.next().await.is_none());
    }
}

/// A client in another process sees the commits of the workers, and its watch is a `Stream`.
mod a_watch_sees_what_other_processes_commit {
    use super::*;
    use crate::payment::Gateway;
    use std::sync::Arc;

    async fn check(url: &str) {
        let gateway = Arc::new(Gateway::failing(0));
        let runtime = Runtime::builder().database(url).only::<Payment>().data(gateway).start().await.unwrap();
        let payments = runtime.machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        payments.settled("o-1").within(Duration::from_secs(20)).await.unwrap();

        let client = Client::connect(url).await.unwrap();
        let mut watch = client.machine::<Payment>().watch("o-1");
        drop(client);
        let first = next(&mut watch).await.unwrap().unwrap();
        assert_eq!(first.state, Some(PaymentState::Created));
        payments.send("o-1", Cancel { by: "customer".into() }).await.unwrap();
        let mut last = first;
        while let Some(seen) = next(&mut watch).await {
            last = seen.unwrap();
        }
        assert_eq!((last.state, last.status), (Some(PaymentState::Cancelled), Status::Completed));
        runtime.shutdown().await.unwrap();
    }

    async fn next<S: futures_util::Stream + Unpin>(watch: &mut S) -> Option<S::Item> {
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut *watch).poll_next(cx)).await
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let file = std::env::temp_dir().join(format!("fsm-watch-{}.db", std::process::id()));
        check(&format!("sqlite://{}", file.display())).await;
        std::fs::remove_file(file).unwrap();
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        check(failing(0).postgres().await.url()).await;
    }
}

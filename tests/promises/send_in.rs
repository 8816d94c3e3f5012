//! A send in the caller's own transaction takes effect if and only if that transaction commits.

use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use fsm::{Handle, SendOutcome};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::payment::{Gateway, OnlinePaymentCompleted, Payment, PaymentState, checkout, paid_with};
use crate::support::Folder;

async fn runtime(url: &str) -> Runtime {
    let builder = Runtime::builder().database(url).only::<Payment>().data(Arc::new(Gateway::failing(0)));
    builder.poll_interval(Duration::from_millis(20)).start().await.unwrap()
}

async fn settled(payments: &Handle<Payment>, key: &str) -> (Option<PaymentState>, i64) {
    let payment = payments.settled(key).within(Duration::from_secs(20)).await.unwrap();
    (payment.state, payment.version)
}

/// The same test for both databases, whose transactions are different types.
macro_rules! check {
    ($url:expr, $connection:ty, $begin:expr, $insert:expr) => {{
        let runtime = runtime($url).await;
        let payments = runtime.machine::<Payment>();
        let mut mine = <$connection>::connect($url).await.unwrap();
        sqlx::raw_sql("create table orders (number text primary key)").execute(&mut mine).await.unwrap();

        let mut tx = mine.begin_with($begin).await.unwrap();
        sqlx::query($insert).bind("o-1").execute(&mut *tx).await.unwrap();
        assert_eq!(payments.send_in(&mut tx, "o-1", checkout()).await.unwrap().outcome, SendOutcome::Started);
        tx.rollback().await.unwrap();
        assert!(payments.get("o-1").await.unwrap().is_none(), "a send that was rolled back has no effect");

        let mut tx = mine.begin_with($begin).await.unwrap();
        sqlx::query($insert).bind("o-1").execute(&mut *tx).await.unwrap();
        payments.send_in(&mut tx, "o-1", checkout()).await.unwrap();
        assert!(payments.get("o-1").await.unwrap().is_none(), "a send that is not committed yet is not visible");
        tx.commit().await.unwrap();
        assert_eq!(settled(&payments, "o-1").await, (Some(PaymentState::Created), 1));

        let mut tx = mine.begin_with($begin).await.unwrap();
        payments.send_in(&mut tx, "o-1", paid_with("r")).await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(settled(&payments, "o-1").await, (Some(PaymentState::Created), 1));

        // Two sends in one transaction, to a known key and to a new one, through the connection itself.
        let mut tx = mine.begin_with($begin).await.unwrap();
        let paid = payments.send_in(&mut *tx, "o-1", paid_with("r")).await.unwrap();
        assert_eq!(payments.send_in(&mut *tx, "o-2", checkout()).await.unwrap().outcome, SendOutcome::Started);
        let next = payments.send("o-1", OnlinePaymentCompleted).in_transaction(&mut *tx).await.unwrap();
        assert_eq!((paid.outcome, next.outcome), (SendOutcome::Started, SendOutcome::Queued));
        tx.commit().await.unwrap();
        assert_eq!(settled(&payments, "o-1").await, (Some(PaymentState::Completed), 3));
        assert_eq!(settled(&payments, "o-2").await, (Some(PaymentState::Created), 1));

        // A refused send leaves the caller's transaction unchanged.
        let mut tx = mine.begin_with($begin).await.unwrap();
        sqlx::query($insert).bind("o-2").execute(&mut *tx).await.unwrap();
        let refused = payments.send_in(&mut tx, "o-2", OnlinePaymentCompleted).await.unwrap_err();
        assert!(refused.is_refused(), "{refused}");
        tx.commit().await.unwrap();
        let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&mut mine).await.unwrap();
        assert_eq!((orders, settled(&payments, "o-2").await.1), (2, 1));
        assert!(runtime.check_invariants().await.unwrap().is_empty());
        mine.close().await.unwrap();
        runtime
    }};
}

mod a_send_in_the_callers_transaction_happens_if_and_only_if_that_commits {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("send-in");
        let url = folder.url("payments.db");
        let runtime = check!(&url, SqliteConnection, "begin immediate", "insert into orders values ($1)");
        runtime.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn postgres() {
        let bed = crate::clumsy::clumsy().postgres().await;
        let runtime = check!(bed.url(), PgConnection, "begin", "insert into orders values ($1)");
        // A transaction on the other kind of database is an error before anything is written.
        let mut other = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let error = runtime.machine::<Payment>().send_in(&mut other, "o-9", checkout()).await.unwrap_err();
        assert_eq!(error.to_string(), "this handle is on PostgreSQL, and the transaction on SQLite");
        runtime.shutdown().await.unwrap();
    }
}

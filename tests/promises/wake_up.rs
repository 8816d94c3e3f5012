//! Wake-ups between processes: a commit of one process starts work in another one at once. If the notification is lost, the work starts at
//! the next poll, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use fsm::prelude::*;
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::payment::{Gateway, Payment, PaymentState, checkout, failing, paid_with};
use crate::support::Folder;

/// A poll interval so long that polling cannot make a test pass.
const AN_HOUR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(30);

async fn worker(url: &str, poll: Duration) -> Runtime {
    let builder = Runtime::builder().database(url).only::<Payment>().data(Arc::new(Gateway::failing(0)));
    builder.poll_interval(poll).start().await.unwrap()
}

/// A send by a process without workers, and a send in the caller's own transaction.
macro_rules! check {
    ($url:expr, $connection:ty, $begin:expr) => {{
        let runtime = worker($url, AN_HOUR).await;
        let payments = Client::connect($url).await.unwrap().machine::<Payment>();
        payments.send("o-1", checkout()).await.unwrap();
        let begun = payments.settled("o-1").within(LIMIT).await.unwrap();
        assert_eq!(begun.state, Some(PaymentState::Created));

        let mut mine = <$connection>::connect($url).await.unwrap();
        let mut tx = mine.begin_with($begin).await.unwrap();
        payments.send_in(&mut tx, "o-1", paid_with("r")).await.unwrap();
        tx.commit().await.unwrap();
        let paid = payments.settled("o-1").within(LIMIT).await.unwrap();
        assert_eq!(paid.state, Some(PaymentState::Paid));
        runtime.shutdown().await.unwrap();
    }};
}

mod an_event_that_one_process_sends_is_begun_by_another_at_once {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("word");
        check!(&folder.url("word.db"), SqliteConnection, "begin immediate");
    }

    #[tokio::test]
    async fn postgres() {
        let database = failing(0).postgres().await;
        check!(database.url(), PgConnection, "begin");
    }
}

#[tokio::test]
async fn a_worker_that_cannot_listen_is_slower_and_loses_nothing() {
    let database = failing(0).postgres().await;
    let runtime = worker(database.url(), Duration::from_millis(50)).await;
    let payments = Client::connect(database.url()).await.unwrap().machine::<Payment>();
    let mut admin = PgConnection::connect(database.url()).await.unwrap();
    let mut listeners = 0;
    for turn in 0..20 {
        let cut = "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%' and datname = current_database()";
        listeners += sqlx::query(cut).fetch_all(&mut admin).await.unwrap().len();
        payments.send(format!("o-{turn}"), checkout()).await.unwrap();
        let begun = payments.settled(format!("o-{turn}")).within(LIMIT).await.unwrap();
        assert_eq!(begun.state, Some(PaymentState::Created));
    }
    assert!(listeners > 0, "no listening connection was terminated");
    assert!(runtime.check_invariants().await.unwrap().is_empty());
    runtime.shutdown().await.unwrap();
}

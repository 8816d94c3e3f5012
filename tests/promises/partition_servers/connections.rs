//! The connections of a process to a server that has several partitions.

use fsm::Client;
use fsm_runtime::admin::partition_move::Step;

use super::moves::{MOVED, step};
use super::*;

/// A poll interval so long that polling cannot make a test pass.
const NO_POLL: Duration = LIMIT.saturating_mul(2);

/// A condition on a connection: it listens.
const LISTENS: &str = "(query ilike 'listen%' or query = 'select 1') and pid <> pg_backend_pid() and datname = current_database()";

/// Runs a query with one number as its result.
pub(super) async fn number(url: &str, query: String) -> i64 {
    let mut server = PgConnection::connect(url).await.unwrap();
    let number = sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&mut server).await.unwrap();
    server.close().await.unwrap();
    number
}

/// Waits until each server has one listening connection.
async fn listens_once(servers: &Servers) {
    for url in [servers.first.url(), servers.second.url()] {
        let listeners = format!("select count(*) from pg_stat_activity where {LISTENS}");
        until("the process listens once on each server", async || number(&url, listeners.clone()).await == 1).await;
    }
}

/// Sends an event to an account of each partition from a process without workers, and waits until a worker has run its verb.
async fn wakes_each(client: &Client, keys: &[String]) {
    let accounts = client.machine::<Account>();
    for key in keys {
        accounts.send(key, Open).await.unwrap();
    }
    for key in keys {
        let settled = accounts.settled(key).within(LIMIT).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(settled.state.is_some(), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_for_each_server_listens_and_after_its_loss_a_notification_wakes_each_partition() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().poll_interval(NO_POLL).start().await.unwrap();
    let client = Client::connect(servers.url()).await.unwrap();
    for round in 0..4 {
        listens_once(&servers).await;
        wakes_each(&client, &keys(&format!("heard-{round}"), 1)).await;
        for url in [servers.first.url(), servers.second.url()] {
            let cut = format!("select count(pg_terminate_backend(pid)) from pg_stat_activity where {LISTENS}");
            assert_eq!(number(&url, cut).await, 1);
        }
        // Nobody hears the notifications of these events. Each partition looks when the connection is open again.
        wakes_each(&client, &keys(&format!("missed-{round}"), 1)).await;
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_moved_to_another_server_hears_there_and_the_others_hear_as_before() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().poll_interval(NO_POLL).start().await.unwrap();
    let client = Client::connect(servers.url()).await.unwrap();
    wakes_each(&client, &keys("before", 1)).await;
    for (round, to) in [servers.first.url(), servers.second.url()].iter().enumerate() {
        step(&servers, to, &Step::ALL).await;
        let keys = keys(&format!("after-{round}"), 1);
        assert!(keys.iter().any(|key| partition_of(key, PARTITIONS) == MOVED));
        wakes_each(&client, &keys).await;
        listens_once(&servers).await;
    }
    runtime.shutdown().await.unwrap();
}

/// The session of a process in a partition: its id, and whether its lease has not ended.
async fn session(servers: &Servers, partition: u32) -> (String, bool) {
    let mut server = PgConnection::connect(&servers.url_of(partition)).await.unwrap();
    let session = format!(
        "select session_id::text, lease_until > extract(epoch from clock_timestamp()) * 1000000 from fsm_{partition:04}.fsm_workers"
    );
    let session = sqlx::query_as(sqlx::AssertSqlSafe(session)).fetch_one(&mut server).await.unwrap();
    server.close().await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_share_a_connection_and_a_locked_session_of_one_partition_ends_none_of_another() {
    const LEASE: Duration = Duration::from_secs(3);
    /// Two partitions are on the server of the locked one, and another one is on the other server.
    const LOCKED: u32 = 0;
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().lease(LEASE).start().await.unwrap();
    let renews_once = async || {
        for url in [servers.first.url(), servers.second.url()] {
            let renewing = "select count(*) from pg_stat_activity where query like '%set lease_until = case%' and pid <> pg_backend_pid()";
            until("one connection renews all leases", async || number(&url, renewing.to_owned()).await == 1).await;
        }
    };
    renews_once().await;
    let mut before = Vec::new();
    for partition in 0..PARTITIONS {
        before.push(session(&servers, partition).await);
    }
    assert!(before.iter().all(|(_, is_certain)| *is_certain), "{before:?}");
    let mut locker = PgConnection::connect(&servers.url_of(LOCKED)).await.unwrap();
    let mut lock = locker.begin().await.unwrap();
    sqlx::query("select 1 from fsm_0000.fsm_workers for update").execute(&mut *lock).await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < LEASE * 3 {
        for partition in (0..PARTITIONS).filter(|partition| *partition != LOCKED) {
            assert_eq!(session(&servers, partition).await, before[partition as usize], "partition {partition}, {:?}", begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!session(&servers, LOCKED).await.1, "nobody could renew the lease of the locked session");
    lock.rollback().await.unwrap();
    until("the lease is renewed", async || session(&servers, LOCKED).await == before[LOCKED as usize]).await;
    renews_once().await;
    runtime.shutdown().await.unwrap();
}

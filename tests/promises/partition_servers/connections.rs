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
async fn number(url: &str, query: String) -> i64 {
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

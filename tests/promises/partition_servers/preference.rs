//! Each process prefers some of the partitions, and overdue work in the others is done by any process.

use std::collections::BTreeSet;

use fsm::Client;
use fsm_core::ids::SessionId;
use fsm_core::preference::{PREFERRED_BY, look_interval, overdue_after, weight};
use uuid::Uuid;

use super::connections::number;
use super::*;

/// For each partition, the number of processes that prefer it.
fn preferring(runtimes: &[&Runtime]) -> Vec<usize> {
    let all: Vec<BTreeSet<u32>> = runtimes.iter().map(|runtime| runtime.health().preferred_partitions.into_iter().collect()).collect();
    (0..PARTITIONS).map(|partition| all.iter().filter(|preferred| preferred.contains(&partition)).count()).collect()
}

/// Credits between all accounts, sent by turns from these processes.
async fn transfers(servers: &Servers, runtimes: &[&Runtime], keys: &[String]) {
    let sending = keys.iter().zip(runtimes.iter().cycle()).map(|(from, runtime)| {
        let accounts = runtime.machine::<Account>();
        tokio::spawn(Ledger::transfer(accounts, from.clone(), keys.to_vec(), 0..20))
    });
    let (sending, mut ledger) = (sending.collect::<Vec<_>>(), Ledger::default());
    for task in sending {
        ledger.add(task.await.unwrap());
    }
    assert!(ledger.doubtful.is_empty(), "{:?}", ledger.doubtful);
    ledger.check(servers, runtimes[0], keys).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_is_preferred_by_two_of_three_processes_and_by_both_that_are_left_after_one_is_killed() {
    let Some(servers) = Servers::start().await else { return };
    let builder = || servers.builder().lease(Duration::from_secs(3));
    let first = builder().start().await.unwrap();
    assert_eq!(first.health().preferred_partitions, (0..PARTITIONS).collect::<Vec<_>>(), "it is alone");
    let (second, third) = tokio::try_join!(builder().start(), builder().start()).unwrap();
    until("two processes prefer each partition", async || preferring(&[&first, &second, &third]) == [PREFERRED_BY; PARTITIONS as usize])
        .await;
    transfers(&servers, &[&first, &second, &third], &keys("of-three", 2)).await;
    // It does not deregister, like a process that is killed.
    drop(third);
    until("both prefer all partitions", async || preferring(&[&first, &second]) == [2; PARTITIONS as usize]).await;
    transfers(&servers, &[&first, &second], &keys("of-two", 2)).await;
    first.shutdown().await.unwrap();
    until("the last one prefers all partitions", async || preferring(&[&second]) == [1; PARTITIONS as usize]).await;
    transfers(&servers, &[&second], &keys("of-one", 2)).await;
    second.shutdown().await.unwrap();
}

/// Registers two sessions in each partition that have higher weights than the one that is there, live for an hour and never do anything. The process
/// that is there prefers no partition then.
async fn freeze_who_is_preferred(servers: &Servers, runtime: &Runtime) {
    for partition in 0..PARTITIONS {
        let mut server = PgConnection::connect(&servers.url_of(partition)).await.unwrap();
        let ids = format!("select session_id from fsm_{partition:04}.fsm_workers");
        let me: Uuid = sqlx::query_scalar(sqlx::AssertSqlSafe(ids)).fetch_one(&mut server).await.unwrap();
        let mine = weight(SessionId(me), partition);
        let higher = (1..).map(Uuid::from_u128).filter(|id| weight(SessionId(*id), partition) > mine).take(PREFERRED_BY);
        for id in higher.collect::<Vec<_>>() {
            let copy = format!(
                "insert into fsm_{partition:04}.fsm_workers (session_id, host, pid, started_at, lease_us, lease_until, reachable_us, code)
                 select '{id}', 'elsewhere', 1, started_at, lease_us, lease_until + 3600000000, reachable_us, code
                 from fsm_{partition:04}.fsm_workers where session_id = '{me}'"
            );
            sqlx::query(sqlx::AssertSqlSafe(copy)).execute(&mut server).await.unwrap();
        }
        server.close().await.unwrap();
    }
    until("the process prefers nothing", async || runtime.health().preferred_partitions.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_work_is_claimed_within_its_bound_if_the_processes_that_prefer_the_partition_do_nothing() {
    const POLL: Duration = Duration::from_millis(250);
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().poll_interval(POLL).lease(Duration::from_secs(3)).start().await.unwrap();
    freeze_who_is_preferred(&servers, &runtime).await;
    let accounts = Client::connect(servers.url()).await.unwrap().machine::<Account>();
    let (mut sent, mut were_overdue) = (0, 0);
    for round in 0..3 {
        for key in keys(&format!("overdue-{round}"), 1) {
            let begun = Instant::now();
            accounts.send(&key, Open).await.unwrap();
            accounts.settled(&key).within(LIMIT).await.unwrap();
            let took = begun.elapsed();
            sent += 1;
            were_overdue += u32::from(took >= overdue_after(POLL));
            // The client asks once a second, and the machine may be busy.
            let bound = overdue_after(POLL) + look_interval(POLL) + Duration::from_secs(4);
            assert!(took < bound, "{took:?} is longer than {bound:?}");
        }
    }
    // A look that finds something else overdue, or that fails, claims all that is due.
    assert!(were_overdue > sent / 2, "{were_overdue} of {sent}: the processes that prefer the partitions were not given the time");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_partition_that_a_process_does_not_prefer_its_own_work_does_not_wait_and_no_connection_is_kept() {
    /// Looks and overdue work come too late for the test.
    const POLL: Duration = LIMIT.saturating_mul(2);
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().poll_interval(POLL).lease(Duration::from_secs(3)).start().await.unwrap();
    freeze_who_is_preferred(&servers, &runtime).await;
    let urls = [servers.first.url(), servers.second.url()];
    let connections = "select count(*) from pg_stat_activity where application_name = 'durable-fsm' and datname = current_database()";
    for round in 0..2 {
        for url in &urls {
            // One listens and one is for heartbeats.
            until("the connections that nothing uses are closed", async || number(url, connections.to_owned()).await == 2).await;
        }
        let keys = keys(&format!("own-{round}"), 1);
        let sent = Ledger::transfer(runtime.machine::<Account>(), keys[0].clone(), keys.clone(), 0..8).await;
        sent.check(&servers, &runtime, &keys).await;
    }
    for partition in 0..PARTITIONS {
        let mut server = PgConnection::connect(&servers.url_of(partition)).await.unwrap();
        let end = format!("delete from fsm_{partition:04}.fsm_workers where host = 'elsewhere'");
        sqlx::query(sqlx::AssertSqlSafe(end)).execute(&mut server).await.unwrap();
        server.close().await.unwrap();
    }
    until("it prefers all partitions again", async || preferring(&[&runtime]) == [1; PARTITIONS as usize]).await;
    runtime.shutdown().await.unwrap();
}

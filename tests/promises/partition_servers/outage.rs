//! One of two servers stops under load, and starts again.

use fsm::Client;

use super::*;

/// The number of sends of each measurement.
const SENDS: usize = 150;
const PATIENCE: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(2);
/// The time by which a limit in wall time may be exceeded on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// Sends events to these accounts by turns, each when the one before has had its effect. Returns the 99th percentile of the durations.
async fn p99(accounts: &Handle<Account>, keys: &[String]) -> Duration {
    let mut took = Vec::with_capacity(SENDS);
    for (number, key) in (0..).zip(keys.iter().cycle().take(SENDS)) {
        let begun = Instant::now();
        accounts.send(key, Credit { from: "outside".to_owned(), number }).await.unwrap();
        accounts.settled(key).within(LIMIT).await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[SENDS * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn while_one_server_is_down_the_other_works_and_what_is_for_the_first_arrives_after_its_restart() {
    let Some(mut servers) = Servers::start().await else { return };
    let runtime = servers.builder().patience(PATIENCE).lease(LEASE).start().await.unwrap();
    let accounts = runtime.machine::<Account>();
    let (keys, measured) = (keys("account", 2), keys("measured", 1));
    let is_on_first = |key: &&String| !is_on_second(partition_of(key, PARTITIONS));
    // The server with the directory stops: nobody needs the directory after the start.
    let (gone, left): (Vec<String>, Vec<String>) = keys.iter().cloned().partition(|key| is_on_first(&key));
    let measured: Vec<_> = measured.into_iter().filter(|key| !is_on_first(&key)).collect();
    let load = |from: &[String], numbers: Range<u32>| -> Vec<_> {
        let one = |from: &String| tokio::spawn(Ledger::transfer(accounts.clone(), from.clone(), keys.clone(), numbers.clone()));
        from.iter().map(one).collect()
    };
    let mut ledger = Ledger::default();

    let callers = load(&keys, 0..40);
    let before = p99(&accounts, &measured).await;
    for caller in callers {
        ledger.add(caller.await.unwrap());
    }
    assert!(ledger.doubtful.is_empty(), "{:?}", ledger.doubtful);

    // It stops under load.
    let callers = load(&left, 40..80).into_iter().chain(load(&gone, 40..44)).collect::<Vec<_>>();
    tokio::task::block_in_place(|| servers.first.stop()).unwrap();
    let during = p99(&accounts, &measured).await;
    println!("p99 of a send to the other server: {before:?} before, {during:?} while the server is down");
    assert!(during <= before * 10 + Duration::from_millis(500), "{before:?} before, and {during:?} while the server is down");

    let begun = Instant::now();
    let error = accounts.send(&gone[0], Open).await.unwrap_err();
    assert!(error.is_database() && begun.elapsed() < PATIENCE + SLACK, "{error} after {:?}", begun.elapsed());
    for caller in callers {
        ledger.add(caller.await.unwrap());
    }
    assert!(ledger.doubtful.iter().all(|(from, ..)| gone.contains(from)), "{:?}", ledger.doubtful);
    println!("{} sends to the server failed", ledger.doubtful.len());
    for key in &left {
        accounts.settled(key).within(LIMIT).await.unwrap();
    }
    let on_second = || (0..PARTITIONS).filter(|partition| is_on_second(*partition));
    assert!(servers.waiting(on_second()).await > 0, "events for the server wait");
    let health = runtime.health();
    let gone_partitions: Vec<_> = (0..PARTITIONS).filter(|partition| !is_on_second(*partition)).collect();
    assert!(health.is_ready() && health.is_live() && health.unready_partitions == gone_partitions, "{health:?}");
    assert_eq!(health.to_string(), "ready, but not on partitions 0, 2");

    tokio::task::block_in_place(|| servers.first.start()).unwrap();
    let begun = Instant::now();
    until("nothing waits", async || servers.waiting(on_second()).await == 0).await;
    println!("what waited has arrived {:?} after the restart", begun.elapsed());
    for caller in load(&keys, 80..90) {
        ledger.add(caller.await.unwrap());
    }
    ledger.check(&servers, &runtime, &keys).await;
    until("all is well again", async || runtime.health().unready_partitions.is_empty()).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_a_partition_that_was_never_reached() {
    let Some(servers) = Servers::start().await else { return };
    let keys = keys("account", 1);
    let frozen = servers.second.freeze().unwrap();
    let builder = servers.builder().lease(LEASE).operation_timeout(Duration::from_secs(60)).shutdown_timeout(Duration::from_secs(60));
    let runtime = builder.patience(PATIENCE).start().await.unwrap();
    assert_eq!(runtime.health().unready_partitions, [1, 3]);
    let accounts = runtime.machine::<Account>();
    accounts.send(&keys[0], Open).await.unwrap();
    accounts.settled(&keys[0]).within(LIMIT).await.unwrap();
    let begun = Instant::now();
    runtime.shutdown().await.unwrap();
    assert!(begun.elapsed() < SLACK, "the shutdown took {:?}", begun.elapsed());
    let mut first = PgConnection::connect(&servers.url()).await.unwrap();
    let sessions: i64 = sqlx::query_scalar("select count(*) from fsm_0000.fsm_workers").fetch_one(&mut first).await.unwrap();
    assert_eq!(sessions, 0, "the session was deregistered where there was one");
    drop(frozen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_while_one_server_is_down_works_on_the_other_and_on_both_when_it_is_back() {
    let Some(mut servers) = Servers::start().await else { return };
    let keys = keys("account", 1);
    tokio::task::block_in_place(|| servers.second.stop()).unwrap();
    let begun = Instant::now();
    let runtime = servers.builder().patience(PATIENCE).lease(LEASE).start().await.unwrap();
    let client = Client::builder().patience(PATIENCE).connect(servers.url()).await.unwrap();
    println!("started after {:?}", begun.elapsed());
    let health = runtime.health();
    assert!(health.is_ready() && health.unready_partitions == [1, 3], "{health:?}");
    let (accounts, from_client) = (runtime.machine::<Account>(), client.machine::<Account>());
    let mut ledger = Ledger::default();
    for handle in [&accounts, &from_client] {
        // Each sends to both servers.
        ledger.add(Ledger::transfer(handle.clone(), keys[0].clone(), keys.clone(), 0..8).await);
        let error = handle.send(&keys[1], Open).await.unwrap_err();
        assert!(error.is_database(), "{error}");
        assert!(handle.get(&keys[1]).await.unwrap_err().is_database());
    }
    accounts.settled(&keys[2]).within(LIMIT).await.unwrap();

    tokio::task::block_in_place(|| servers.second.start()).unwrap();
    let begun = Instant::now();
    until("all partitions are used", async || runtime.health().unready_partitions.is_empty()).await;
    println!("all partitions are used {:?} after the start of the server", begun.elapsed());
    until("the client sends again", async || from_client.send(&keys[1], Credit { from: "outside".into(), number: 0 }).await.is_ok()).await;
    ledger.add(Ledger::transfer(accounts.clone(), keys[1].clone(), keys.clone(), 20..28).await);
    until("the credits arrive", async || servers.waiting(0..PARTITIONS).await == 0).await;
    for (_, to) in ledger.sent.keys() {
        accounts.settled(to).within(LIMIT).await.unwrap();
    }
    let credits = accounts.get(&keys[3]).await.unwrap().unwrap().record.credits;
    let numbers = |from: &String| credits.iter().filter(|(sender, _)| sender == from).map(|(_, number)| *number).collect::<Vec<_>>();
    assert_eq!((numbers(&keys[0]), numbers(&keys[1])), (vec![3, 7, 3, 7], vec![23, 27]));
    assert!(runtime.check_invariants().await.unwrap().is_empty());
    drop(client);
    runtime.shutdown().await.unwrap();
}

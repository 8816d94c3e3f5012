//! One of two servers stops under load, and starts again.

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
    assert!(!health.is_ready() && health.is_live(), "{health:?}");

    tokio::task::block_in_place(|| servers.first.start()).unwrap();
    let begun = Instant::now();
    until("nothing waits", async || servers.waiting(on_second()).await == 0).await;
    println!("what waited has arrived {:?} after the restart", begun.elapsed());
    for caller in load(&keys, 80..90) {
        ledger.add(caller.await.unwrap());
    }
    ledger.check(&servers, &runtime, &keys).await;
    until("all is well again", async || runtime.health().is_ready()).await;
    runtime.shutdown().await.unwrap();
}

//! Two processes on the partitions of two servers.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_shutdown_of_one_of_two_processes_leaves_no_event_between_partitions_behind() {
    let Some(servers) = Servers::start().await else { return };
    let (first, second) = tokio::try_join!(servers.builder().start(), servers.builder().start()).unwrap();
    let keys = keys("account", 2);
    let callers: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(n, from)| {
            let accounts = if n % 2 == 0 { first.machine::<Account>() } else { second.machine::<Account>() };
            let after = second.machine::<Account>();
            let (from, keys) = (from.clone(), keys.clone());
            tokio::spawn(async move {
                let mut ledger = Ledger::transfer(accounts, from.clone(), keys.clone(), 0..80).await;
                ledger.add(Ledger::transfer(after, from, keys, 80..100).await);
                ledger
            })
        })
        .collect();
    // The shutdown begins in the middle of the traffic.
    let accounts = second.machine::<Account>();
    until("the traffic flows", async || accounts.get(&keys[0]).await.unwrap().is_some_and(|account| account.record.credits.len() >= 5))
        .await;
    let begun = Instant::now();
    first.shutdown().await.unwrap();
    println!("the shutdown took {:?}", begun.elapsed());
    let mut ledger = Ledger::default();
    for caller in callers {
        ledger.add(caller.await.unwrap());
    }
    println!("{} sends were answered by the shutdown", ledger.doubtful.len());
    // Events that the first process was delivering do not wait until its claim ends.
    ledger.check(&servers, &second, &keys).await;
    second.shutdown().await.unwrap();
}

/// A scan at the poll interval would come too late.
#[tokio::test(flavor = "multi_thread")]
async fn no_event_between_partitions_waits_for_a_poll_because_another_process_serves_the_same_partitions() {
    let Some(servers) = Servers::start().await else { return };
    let builder = || servers.builder().poll_interval(2 * LIMIT);
    let (first, second) = tokio::try_join!(builder().start(), builder().start()).unwrap();
    let keys = keys("account", 2);
    let callers: Vec<_> = keys
        .iter()
        .flat_map(|from| [(&first, from.clone(), 0..20), (&second, format!("{from}-too"), 0..20)])
        .map(|(process, from, numbers)| tokio::spawn(Ledger::transfer(process.machine::<Account>(), from, keys.clone(), numbers)))
        .collect();
    let mut ledger = Ledger::default();
    for caller in callers {
        ledger.add(caller.await.unwrap());
    }
    assert!(ledger.doubtful.is_empty(), "{:?}", ledger.doubtful);
    let all: Vec<_> = keys.iter().cloned().chain(keys.iter().map(|key| format!("{key}-too"))).collect();
    ledger.check(&servers, &second, &all).await;
    tokio::try_join!(first.shutdown(), second.shutdown()).unwrap();
}

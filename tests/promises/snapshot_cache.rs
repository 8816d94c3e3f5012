//! The snapshot cache: a process caches the snapshot that its own commit left, and changes by other processes are noticed.

use std::time::Duration;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::payment::failing;
use crate::support::Folder;

const LIMIT: Duration = Duration::from_secs(30);
const KEYS: usize = 3;
const EACH: u64 = 60;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Sum {
    sum: u64,
    times: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Add {
    amount: u64,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Count;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Agree;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Close;

#[verb]
async fn opened(_event: Open) -> Result {
    Ok(())
}
#[verb]
#[retry("5s")]
async fn added(record: &mut Sum, event: Add) -> Result {
    record.sum += event.amount;
    record.times += 1;
    Ok(())
}
#[verb]
async fn counted(_event: Count) -> Result {
    Ok(())
}
#[verb]
async fn agreed(_event: Agree) -> Result {
    Ok(())
}
#[verb]
async fn closed(_event: Close) -> Result {
    Ok(())
}

fsm! {
    machine SharedTill = "shared-till" {
        keeps Sum;
        start opened;
        any(opened, added, agreed) -> added;
        added -> counted;
        counted -> agreed;
        any(opened, added) -> closed;
        end closed;
    }
}

async fn worker(url: &str) -> Runtime {
    Runtime::builder().database(url).only::<SharedTill>().poll_interval(Duration::from_millis(20)).start().await.unwrap()
}

async fn two_processes_take_turns(url: &str) {
    let both = [worker(url).await, worker(url).await];
    let tills = both.each_ref().map(|runtime| runtime.machine::<SharedTill>());
    for key in ["a", "b", "0", "1"] {
        tills[0].send(key, Open).await.unwrap();
        tills[0].settled(key).within(LIMIT).await.unwrap();
    }
    // Each process makes two transitions, so that it has a cached snapshot when the other process writes.
    let mut expected = 0;
    for turn in 0..24_u64 {
        let who = (turn as usize / 2) % 2;
        let till = &tills[who];
        for _ in 0..3 * (1 - turn % 2) {
            till.send(who.to_string(), Add { amount: 1 }).await.unwrap();
            till.settled(who.to_string()).within(LIMIT).await.unwrap();
        }
        till.send("a", Add { amount: turn }).await.unwrap();
        let seen = till.settled("a").within(LIMIT).await.unwrap();
        expected += turn;
        assert_eq!((seen.record.sum, seen.version), (expected, turn as i64 + 2));
    }
    // Each event of one process fits only the state that the other process has led to.
    for _ in 0..4 {
        tills[0].send("b", Add { amount: 1 }).await.unwrap();
        tills[0].settled("b").within(LIMIT).await.unwrap();
        tills[1].send("b", Count).await.unwrap();
        tills[1].settled("b").within(LIMIT).await.unwrap();
        tills[0].send("b", Agree).await.unwrap();
        tills[0].settled("b").within(LIMIT).await.unwrap();
    }
    // An end state that one process reached is known to the other one.
    tills[0].send("b", Add { amount: 1 }).await.unwrap();
    tills[0].settled("b").within(LIMIT).await.unwrap();
    tills[1].send("b", Close).await.unwrap();
    tills[1].settled("b").within(LIMIT).await.unwrap();
    let refused = tills[0].send("b", Add { amount: 1 }).await.unwrap_err();
    assert!(refused.is_refused(), "{refused}");
    for runtime in both {
        assert!(runtime.check_invariants().await.unwrap().is_empty());
        runtime.shutdown().await.unwrap();
    }
}

async fn two_processes_at_once(url: &str) {
    let both = [worker(url).await, worker(url).await];
    let first = both[0].machine::<SharedTill>();
    for key in 0..KEYS {
        first.send(key.to_string(), Open).await.unwrap();
    }
    let senders: Vec<_> = (0..2 * KEYS)
        .map(|sender| {
            let (till, key) = (both[sender % 2].machine::<SharedTill>(), (sender / 2).to_string());
            tokio::spawn(async move {
                for amount in 1..=EACH {
                    till.send(&key, Add { amount }).await.unwrap();
                    if amount % 3 == 0 {
                        till.settled(&key).within(LIMIT).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    for key in 0..KEYS {
        let till = first.settled(key.to_string()).within(LIMIT).await.unwrap();
        let record = till.record;
        assert_eq!((record.times, record.sum), (2 * EACH, EACH * (EACH + 1)), "each was added once");
    }
    for runtime in both {
        assert!(runtime.check_invariants().await.unwrap().is_empty());
        runtime.shutdown().await.unwrap();
    }
}

/// Runs the test on a SQLite file and on PostgreSQL.
macro_rules! on_both {
    ($promise:ident) => {
        #[cfg(feature = "sqlite")]
        #[tokio::test(flavor = "multi_thread")]
        async fn sqlite() {
            let folder = Folder::new(stringify!($promise));
            super::$promise(&folder.url("till.db")).await;
        }

        #[cfg(feature = "postgres")]
        #[tokio::test(flavor = "multi_thread")]
        async fn postgres() {
            let database = failing(0).postgres().await;
            super::$promise(database.url()).await;
        }
    };
}

mod a_process_notices_what_another_one_changed_in_an_instance_that_it_has_cached {
    use super::{Folder, failing};
    on_both!(two_processes_take_turns);
}

mod two_processes_that_move_one_instance_at_once_lose_nothing {
    use super::{Folder, failing};
    on_both!(two_processes_at_once);
}

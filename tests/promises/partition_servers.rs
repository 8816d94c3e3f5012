//! Partitions on two servers, with real runtimes: events between partitions arrive once and in order, and the end of a server or of a process
//! delays only the work that needs it.

mod access;
mod connections;
mod limits;
mod moves;
mod outage;
mod preference;
mod processes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::testing::cluster::Cluster;
use fsm::{Builder, Handle, partition_of};
use fsm_runtime::admin::Opening;
use fsm_runtime::admin::partitions;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use crate::hostile_database::own_cluster;

const PARTITIONS: u32 = 4;
/// A time limit that is long enough on a busy machine. It is shorter than the time for which a process that died keeps events from others.
const LIMIT: Duration = Duration::from_secs(40);

/// The credits of an account, each by its sender and number, in the order of their arrival.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Book {
    balance: i64,
    credits: Vec<(String, u32)>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Credit {
    from: String,
    number: u32,
}
/// Sends a credit to another account.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Transfer {
    to: String,
    number: u32,
}

/// Credits have different amounts, so that the sum shows a credit that is missing beside another one that came twice.
fn amount(number: u32) -> i64 {
    i64::from(number * number + 1)
}

#[verb]
async fn opened(_event: Open) -> Result {
    Ok(())
}
#[verb]
async fn credited(record: &mut Book, event: Credit) -> Result {
    record.balance += amount(event.number);
    record.credits.push((event.from, event.number));
    Ok(())
}
#[verb]
async fn transferred(ctx: &mut Ctx<'_>, record: &mut Book, event: Transfer) -> Result {
    record.balance -= amount(event.number);
    let from = ctx.key().to_owned();
    ctx.send::<Account>(&event.to, Credit { from, number: event.number })?;
    Ok(())
}

fsm! {
    machine Account = "server-account" {
        keeps Book;
        start opened | credited | transferred;
        any(opened, credited, transferred) -> credited | transferred;
    }
}

/// Two servers with four partitions by turns. The first one has the directory.
struct Servers {
    first: Cluster,
    second: Cluster,
}

impl Servers {
    /// `None` without an installed PostgreSQL.
    async fn start() -> Option<Servers> {
        let (first, second) = tokio::join!(tokio::task::spawn_blocking(own_cluster), tokio::task::spawn_blocking(own_cluster));
        let servers = Servers { first: first.unwrap()?, second: second.unwrap()? };
        let urls = [servers.first.url(), servers.second.url()];
        let created = partitions::create(&Opening::to_act(servers.url()), PARTITIONS, &urls).await.unwrap();
        assert!(created.is_new && created.partitions.len() == PARTITIONS as usize);
        Some(servers)
    }

    fn url(&self) -> String {
        self.first.url()
    }

    fn url_of(&self, partition: u32) -> String {
        if is_on_second(partition) { self.second.url() } else { self.first.url() }
    }

    fn builder(&self) -> Builder {
        let builder = Runtime::builder().database(self.url()).only::<Account>();
        builder.poll_interval(Duration::from_millis(50)).shutdown_timeout(Duration::from_secs(5))
    }

    /// The number of events that wait in the outboxes of these partitions.
    async fn waiting(&self, partitions: impl IntoIterator<Item = u32>) -> i64 {
        let mut sum = 0;
        for partition in partitions {
            let mut server = PgConnection::connect(&self.url_of(partition)).await.unwrap();
            let count = format!("select count(*) from fsm_{partition:04}.fsm_partition_outbox");
            sum += sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(count)).fetch_one(&mut server).await.unwrap();
            server.close().await.unwrap();
        }
        sum
    }
}

fn is_on_second(partition: u32) -> bool {
    partition % 2 == 1
}

/// The first `count` keys of this form in each partition, in the order of the partitions.
fn keys(form: &str, count: usize) -> Vec<String> {
    let of = |partition| (0..).map(|n| format!("{form}-{n}")).filter(move |key| partition_of(key, PARTITIONS) == partition);
    (0..PARTITIONS).flat_map(|partition| of(partition).take(count)).collect()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The numbers of the credits that each sender has sent to each receiver, in order.
#[derive(Debug, Default)]
struct Ledger {
    /// The send of the transfer was acknowledged.
    sent: BTreeMap<(String, String), Vec<u32>>,
    /// The send of the transfer was an error, which does not always say that it was not written.
    doubtful: Vec<(String, String, u32)>,
}

impl Ledger {
    /// Makes transfers one after the other from one account to others by turns.
    async fn transfer(accounts: Handle<Account>, from: String, to: Vec<String>, numbers: Range<u32>) -> Ledger {
        let mut ledger = Ledger::default();
        for number in numbers {
            let to = to[number as usize % to.len()].clone();
            match accounts.send(&from, Transfer { to: to.clone(), number }).await {
                Ok(_) => ledger.sent.entry((from.clone(), to)).or_default().push(number),
                Err(error) => {
                    assert!(error.is_database() || error.kind() == fsm::ErrorKind::Stopping, "{error}");
                    ledger.doubtful.push((from.clone(), to, number));
                }
            }
        }
        ledger
    }

    fn add(&mut self, other: Ledger) {
        for (pair, numbers) in other.sent {
            self.sent.entry(pair).or_default().extend(numbers);
        }
        self.doubtful.extend(other.doubtful);
    }

    /// Waits until no event is under way, and checks that each credit has arrived once and in the order of its sender.
    async fn check(&self, servers: &Servers, runtime: &Runtime, keys: &[String]) {
        let accounts = runtime.machine::<Account>();
        let sent: usize = self.sent.values().map(Vec::len).sum();
        until("all credits arrive", async || {
            let mut arrived = 0;
            for key in keys {
                arrived += accounts.get(key).await.unwrap().map_or(0, |account| account.record.credits.len());
            }
            arrived >= sent && servers.waiting(0..PARTITIONS).await == 0
        })
        .await;
        let (mut balance, mut arrived) = (0, BTreeMap::<(String, String), Vec<u32>>::new());
        for key in keys {
            let Some(_) = accounts.get(key).await.unwrap() else { continue };
            let account = accounts.settled(key).within(LIMIT).await.unwrap();
            balance += account.record.balance;
            for (from, number) in account.record.credits {
                arrived.entry((from, key.clone())).or_default().push(number);
            }
        }
        for (pair, numbers) in &mut arrived {
            assert!(numbers.is_sorted_by(|one, next| one < next), "{pair:?}: not once and in order: {numbers:?}");
            let known = self.sent.get(pair).cloned().unwrap_or_default();
            let is_doubtful = |number: &u32| self.doubtful.iter().any(|(from, to, one)| (from, to, one) == (&pair.0, &pair.1, number));
            numbers.retain(|number| known.contains(number) || !is_doubtful(number));
        }
        arrived.retain(|_, numbers| !numbers.is_empty());
        assert_eq!(arrived, self.sent);
        // Every credit was taken from another account.
        assert_eq!(balance, 0, "the sum of all books");
        let violations = runtime.check_invariants().await.unwrap();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn money_that_accounts_of_all_partitions_send_to_each_other_is_neither_lost_nor_doubled() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().start().await.unwrap();
    let keys = keys("account", 3);
    let tasks: Vec<_> =
        keys.iter().map(|from| tokio::spawn(Ledger::transfer(runtime.machine::<Account>(), from.clone(), keys.clone(), 0..40))).collect();
    let mut ledger = Ledger::default();
    for task in tasks {
        ledger.add(task.await.unwrap());
    }
    assert!(ledger.doubtful.is_empty(), "{:?}", ledger.doubtful);
    ledger.check(&servers, &runtime, &keys).await;
    runtime.shutdown().await.unwrap();
}

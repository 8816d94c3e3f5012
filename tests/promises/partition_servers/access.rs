//! Access to partitions on two servers: a send in the caller's transaction, a client, an unknown limit, and schedules.

use std::collections::BTreeSet;

use fsm::{Client, Filter, Missed, Schedule, SendOutcome};

use super::*;

fn credit(number: u32) -> Credit {
    Credit { from: "outside".to_owned(), number }
}

/// Connects to the server of a partition, with a table of the caller's own.
async fn connected(servers: &Servers, partition: u32) -> PgConnection {
    let mut server = PgConnection::connect(&servers.url_of(partition)).await.unwrap();
    sqlx::raw_sql("create table if not exists public.orders (number text primary key)").execute(&mut server).await.unwrap();
    server
}

async fn select_schema(conn: &mut PgConnection, partition: u32) {
    let statement = format!("set local search_path to fsm_{partition:04}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(conn).await.unwrap();
}

async fn order(conn: &mut PgConnection, number: &str) {
    sqlx::query("insert into public.orders values ($1)").bind(number).execute(conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_in_the_callers_transaction_works_on_the_schema_of_its_partition_and_is_an_error_elsewhere() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().start().await.unwrap();
    let (accounts, keys) = (runtime.machine::<Account>(), keys("account", 1));
    let mut server = connected(&servers, 1).await;

    // Two partitions of one server, in one transaction.
    let mut tx = server.begin().await.unwrap();
    order(&mut tx, "o-1").await;
    for partition in [1, 3] {
        select_schema(&mut tx, partition).await;
        let sent = accounts.send_in(&mut tx, &keys[partition as usize], credit(1)).await.unwrap();
        assert_eq!(sent.outcome, SendOutcome::Started);
    }
    assert!(accounts.get(&keys[1]).await.unwrap().is_none(), "it is not committed");
    tx.commit().await.unwrap();
    for partition in [1, 3] {
        let account = accounts.settled(&keys[partition]).within(LIMIT).await.unwrap();
        assert_eq!(account.record.credits, [("outside".to_owned(), 1)]);
    }
    let mut tx = server.begin().await.unwrap();
    select_schema(&mut tx, 3).await;
    accounts.send_in(&mut tx, &keys[3], credit(2)).await.unwrap();
    tx.rollback().await.unwrap();

    // On the schema of another partition, of no partition, and on the other server, nothing is written, and the transaction goes on.
    let mut other_server = connected(&servers, 0).await;
    for (is_there, schema, number) in [(true, Some(1), "o-2"), (false, None, "o-3"), (false, Some(2), "o-4")] {
        let conn = if is_there { &mut server } else { &mut other_server };
        let mut tx = conn.begin().await.unwrap();
        if let Some(partition) = schema {
            select_schema(&mut tx, partition).await;
        }
        let error = accounts.send_in(&mut tx, &keys[3], credit(3)).await.unwrap_err();
        let expected = format!(
            "`{}` belongs to partition 3, and the transaction is not on it: connect to its server, and `set local search_path to fsm_0003` in the \
             transaction",
            keys[3]
        );
        assert_eq!((error.is_input(), error.to_string()), (true, expected));
        order(&mut tx, number).await;
        tx.commit().await.unwrap();
    }
    for (conn, orders) in [(&mut server, 2_i64), (&mut other_server, 2)] {
        assert_eq!(sqlx::query_scalar::<_, i64>("select count(*) from public.orders").fetch_one(conn).await.unwrap(), orders);
    }
    let account = accounts.settled(&keys[3]).within(LIMIT).await.unwrap();
    assert_eq!(account.record.credits, [("outside".to_owned(), 1)]);
    assert!(runtime.check_invariants().await.unwrap().is_empty());
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_the_directory_reaches_all_partitions_and_one_of_a_partition_is_refused() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().start().await.unwrap();
    let client = Client::connect(servers.url()).await.unwrap();
    let (accounts, keys) = (client.machine::<Account>(), keys("account", 2));
    for key in &keys {
        let mut watch = {
            accounts.send(key, Open).await.unwrap();
            accounts.settled(key).within(LIMIT).await.unwrap();
            accounts.watch(key)
        };
        assert_eq!(watch.next().await.unwrap().unwrap().state, Some(AccountState::Opened));
        let waits = accounts.wait(key).for_state(AccountState::Credited).within(LIMIT);
        let (waited, sent) = tokio::join!(waits.into_future(), accounts.send(key, credit(7)).into_future());
        sent.unwrap();
        assert_eq!(waited.unwrap().record.credits.len(), 1);
        loop {
            let seen = watch.next().await.unwrap().unwrap();
            if seen.state == Some(AccountState::Credited) {
                break;
            }
        }
        let read = accounts.get(key).await.unwrap().unwrap();
        assert_eq!((&read.key, read.version, read.record.balance), (key, 2, amount(7)));
        assert!(!accounts.history(key).await.unwrap().is_empty());
        assert_eq!(accounts.attempts(key).await.unwrap().len(), 2);
    }
    // An event from one server to the other.
    accounts.send(&keys[0], Transfer { to: keys[2].clone(), number: 1 }).await.unwrap();
    until("the credit arrives", async || accounts.get(&keys[2]).await.unwrap().unwrap().record.credits.len() == 2).await;
    let listed = accounts.list(Filter::default().limit(100)).await.unwrap();
    let listed: BTreeSet<_> = listed.items.into_iter().map(|account| account.key).collect();
    assert_eq!(listed, keys.iter().cloned().collect());
    assert!(accounts.settled("nobody").await.unwrap_err().is_not_found());
    assert!(client.check_invariants().await.unwrap().is_empty());

    let of_partition = format!("{}?options=-csearch_path%3Dfsm_0001", servers.url_of(1));
    let begun = Instant::now();
    let refused =
        [Client::connect(&of_partition).await.err().unwrap(), servers.builder().database(&of_partition).start().await.err().unwrap()];
    for error in refused {
        let text = error.to_string();
        assert!(
            error.is_database() && text.contains("is one partition of several; connect to the database that has the directory"),
            "{text}"
        );
    }
    assert!(begun.elapsed() < LIMIT / 2, "it is refused at once");
    runtime.shutdown().await.unwrap();
}

/// A machine whose verb has a limit.
mod limited {
    use super::*;

    #[verb(limit = "provider")]
    async fn charged(_event: Open) -> Result {
        Ok(())
    }
    fsm! {
        pub machine Charge = "server-charge" {
            start charged;
            end charged;
        }
    }
}

/// Each moment of the schedule sends its number of seconds, to an account on the other server.
fn every_second(name: &str, to: &str) -> fsm::DeclaredSchedule {
    let to = to.to_owned();
    let event = move |due: &fsm::Due| {
        let number = (due.at().as_micros() / 1_000_000 % 10_000) as u32;
        (to.clone(), Credit { from: "schedule".to_owned(), number })
    };
    Schedule::every("1s").name(name).send::<Account>(event).missed(Missed::All)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_sends_each_moment_once_to_another_partition_and_a_verb_with_an_unknown_limit_does_not_start() {
    let Some(servers) = Servers::start().await else { return };
    let undeclared = servers.builder().only::<limited::Charge>().start().await.err().unwrap();
    let text = undeclared.to_string();
    assert!(
        undeclared.is_input() && text.contains("has the limit \"provider\", which is not declared; these limits exist: none"),
        "{text}"
    );

    let (names, keys) = (keys("every-second", 1), keys("account", 1));
    let builder = || servers.builder().schedule(every_second(&names[0], &keys[1])).schedule(every_second(&names[3], &keys[3]));
    let (first, second) = tokio::try_join!(builder().start(), builder().start()).unwrap();
    let accounts = first.machine::<Account>();
    let credits = async |key: &str| accounts.get(key).await.unwrap().map_or_else(Vec::new, |account| account.record.credits);
    until("three moments are sent", async || credits(&keys[1]).await.len() >= 3 && credits(&keys[3]).await.len() >= 3).await;
    for key in [&keys[1], &keys[3]] {
        let numbers: Vec<_> = credits(key).await.into_iter().map(|(_, number)| number).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 10_000), "{key}: {numbers:?}");
    }
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

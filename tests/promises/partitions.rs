//! On a database with partitions, an instance is in the partition of its key, and everything works as on one database, except what the guide
//! says.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{CallId, HistoryEvent, partition_of};
use serde::{Deserialize, Serialize};

const PARTITIONS: u32 = 4;
const AN_HOUR: Duration = Duration::from_secs(3600);

/// The amounts that have arrived, in their order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Book {
    amounts: Vec<u32>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Credit {
    amount: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Close;

/// Sends one credit for each amount to an account, at once or delayed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Transfer {
    to: String,
    amounts: Vec<u32>,
    after: Option<Duration>,
    is_required: bool,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Revoke;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Raise {
    key: String,
}

/// The last delayed credit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Sends {
    last: Option<CallId>,
}

#[verb]
async fn opened(_event: Open) -> Result {
    Ok(())
}
#[verb]
#[retry("1s")]
async fn credited(record: &mut Book, event: Credit) -> Result {
    record.amounts.push(event.amount);
    Ok(())
}
#[verb]
async fn closed(_event: Close) -> Result {
    Ok(())
}
#[verb]
#[retry(2, "1s")]
async fn transferred(ctx: &mut Ctx<'_>, record: &mut Sends, event: Transfer) -> Result {
    for amount in event.amounts {
        let credit = ctx.send::<Account>(&event.to, Credit { amount })?;
        match event.after {
            Some(wait) => record.last = Some(credit.after(wait)),
            None if event.is_required => drop(credit.required()),
            None => {}
        }
    }
    Ok(())
}
#[verb]
async fn revoked(ctx: &mut Ctx<'_>, record: &mut Sends, _event: Revoke) -> Result {
    record.last.take().into_iter().for_each(|send| ctx.unsend(send));
    Ok(())
}
#[verb]
async fn raised(ctx: &mut Ctx<'_>, event: Raise) -> Result {
    ctx.child::<Account>(&event.key, Open)?;
    Ok(())
}

fsm! {
    machine Account = "partition-account" {
        keeps Book;
        start opened | credited;
        any(opened, credited) -> credited | closed;
        end closed;
    }
}
fsm! {
    machine Bank = "partition-bank" {
        keeps Sends;
        start transferred | raised;
        any(transferred, revoked, raised) -> transferred | revoked;
    }
}

fn bank() -> TestBedBuilder {
    TestBed::builder().only::<Account>().only::<Bank>()
}

/// The first keys of this form, one for each partition, in the order of their partitions.
fn one_key_in_each(form: &str) -> Vec<String> {
    let key = |n: u32| format!("{form}-{n}");
    (0..PARTITIONS).map(|partition| (0..).map(key).find(|key| partition_of(key, PARTITIONS) == partition).unwrap()).collect()
}

fn transfer(to: &str, amounts: &[u32]) -> Transfer {
    Transfer { to: to.to_owned(), amounts: amounts.to_vec(), after: None, is_required: false }
}

async fn amounts(bed: &TestBed, key: &str) -> Vec<u32> {
    bed.machine::<Account>().get(key).await.unwrap().map(|account| account.record.amounts).unwrap_or_default()
}

#[tokio::test]
async fn an_event_to_another_partition_arrives_once_and_in_order() {
    let bed = bank().partitions(PARTITIONS).await;
    let (banks, accounts) = (one_key_in_each("bank"), one_key_in_each("account"));
    for (n, bank) in (0..).zip(&banks) {
        for account in &accounts {
            bed.machine::<Bank>().send(bank, transfer(account, &[10 * n + 1, 10 * n + 2, 10 * n + 3])).await.unwrap();
        }
    }
    bed.run_until_idle().await;
    for account in &accounts {
        let arrived = amounts(&bed, account).await;
        assert_eq!(arrived.len(), 12, "{account}: {arrived:?}");
        for n in 0..PARTITIONS {
            let of_bank: Vec<_> = arrived.iter().copied().filter(|amount| amount / 10 == n).collect();
            assert_eq!(of_bank, [10 * n + 1, 10 * n + 2, 10 * n + 3], "{account}: {arrived:?}");
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_point_neither_loses_nor_repeats_an_event_between_partitions() {
    let bed = bank().partitions(2).await;
    let key_in = |form: String, partition| (0..).map(|n| format!("{form}-{n}")).find(|key| partition_of(key, 2) == partition).unwrap();
    // A third of the statements are tried.
    for crash in (0..).step_by(3) {
        let (bank, account) = (key_in(format!("bank-{crash}"), 0), key_in(format!("account-{crash}"), 1));
        let died = bed.crash_after_statements(crash, async {
            bed.machine::<Bank>().send(&bank, transfer(&account, &[1, 2])).await.unwrap();
            bed.run_until_idle().await;
        });
        let died = died.await;
        // The attempts of the dead process are lost when its lease ends, and so does its claim of the events.
        bed.advance(Duration::from_secs(120)).await;
        let is_sent = bed.machine::<Bank>().get(&bank).await.unwrap().is_some();
        let expected: &[u32] = if is_sent { &[1, 2] } else { &[] };
        assert_eq!(amounts(&bed, &account).await, expected, "death after {crash} statements");
        if !died {
            assert!(crash > 20, "there are more than {crash} statements");
            return;
        }
    }
}

#[tokio::test]
async fn a_full_inbox_in_another_partition_delays_events_and_keeps_their_order() {
    let bed = bank().with(|builder| builder.inbox_limit(2)).partitions(PARTITIONS).await;
    let (bank, account) = (&one_key_in_each("bank")[0], &one_key_in_each("account")[1]);
    let accounts = bed.machine::<Account>();
    accounts.send(account, Open).await.unwrap();
    bed.run_until_idle().await;
    accounts.pause(account).await.unwrap();
    bed.machine::<Bank>().send(bank, transfer(account, &[1, 2, 3, 4, 5, 6])).await.unwrap();
    bed.advance(Duration::from_secs(3)).await;
    assert_eq!(accounts.get(account).await.unwrap().unwrap().inbox_len, 2);
    bed.machine::<Bank>().send(bank, transfer(account, &[7])).await.unwrap();
    accounts.resume(account).await.unwrap();
    bed.advance(Duration::from_secs(60)).await;
    assert_eq!(amounts(&bed, account).await, [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn an_event_that_another_partition_refuses_is_in_the_history_of_its_sender() {
    let bed = bank().partitions(PARTITIONS).await;
    let (bank, account) = (&one_key_in_each("bank")[0], &one_key_in_each("account")[2]);
    let accounts = bed.machine::<Account>();
    accounts.send(account, Open).await.unwrap();
    accounts.send(account, Close).await.unwrap();
    bed.run_until_idle().await;
    bed.machine::<Bank>().send(bank, transfer(account, &[1])).await.unwrap();
    bed.run_until_idle().await;
    let history = bed.machine::<Bank>().history(bank).await.unwrap();
    let note = history.iter().find_map(|entry| match &entry.event {
        HistoryEvent::Note { kind, detail, .. } => Some(format!("{kind}: {}", detail.clone().unwrap_or_default())),
        _ => None,
    });
    let note = note.expect("the refusal is noted");
    assert!(note.starts_with("rejected: ") && note.contains("Credit"), "{note}");
}

#[tokio::test]
async fn a_delayed_event_to_another_partition_comes_in_time_or_is_cancelled() {
    let bed = bank().partitions(PARTITIONS).await;
    let (bank, account) = (&one_key_in_each("bank")[3], &one_key_in_each("account")[1]);
    let delayed = |amount| Transfer { after: Some(AN_HOUR), ..transfer(account, &[amount]) };
    bed.machine::<Bank>().send(bank, delayed(1)).await.unwrap();
    bed.advance(AN_HOUR / 2).await;
    assert!(amounts(&bed, account).await.is_empty());
    bed.machine::<Bank>().send(bank, transfer(account, &[2])).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(amounts(&bed, account).await, [2], "a delayed event does not hold back others");
    bed.advance(AN_HOUR / 2).await;
    assert_eq!(amounts(&bed, account).await, [2, 1]);

    bed.machine::<Bank>().send(bank, delayed(3)).await.unwrap();
    bed.machine::<Bank>().send(bank, Revoke).await.unwrap();
    bed.advance(AN_HOUR * 2).await;
    assert_eq!(amounts(&bed, account).await, [2, 1]);
    // The event was delivered before it was to be cancelled.
    bed.machine::<Bank>().send(bank, delayed(4)).await.unwrap();
    bed.advance(AN_HOUR).await;
    bed.machine::<Bank>().send(bank, Revoke).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(amounts(&bed, account).await, [2, 1, 4]);
}

#[tokio::test]
async fn what_one_commit_cannot_do_in_two_partitions_is_an_error_that_says_so() {
    let bed = bank().partitions(PARTITIONS).await;
    let (banks, accounts) = (one_key_in_each("bank"), one_key_in_each("account"));
    let required = Transfer { is_required: true, ..transfer(&accounts[1], &[1]) };
    bed.machine::<Bank>().send(&banks[0], required.clone()).await.unwrap();
    bed.advance(Duration::from_secs(60)).await;
    let required_error = bed.machine::<Bank>().get(&banks[0]).await.unwrap().unwrap().error.unwrap_or_default();
    assert!(required_error.contains("belongs to partition 1: only a receiver in the same partition can refuse it"), "{required_error}");
    assert!(amounts(&bed, &accounts[1]).await.is_empty());

    // With a tag both are in one partition.
    bed.machine::<Bank>().send("bank-{acme}", Transfer { to: "account-{acme}".into(), ..required }).await.unwrap();
    bed.machine::<Bank>().send("raise-{acme}", Raise { key: "child-{acme}".into() }).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(amounts(&bed, "account-{acme}").await, [1]);
    assert!(bed.machine::<Account>().get("child-{acme}").await.unwrap().unwrap().parent.is_some());
}

#[tokio::test]
async fn lists_counts_and_bulk_acts_are_about_all_partitions() {
    let bed = bank().partitions(PARTITIONS).await;
    let accounts = bed.machine::<Account>();
    let keys: Vec<String> = (0..50).map(|n| format!("a-{n:02}")).collect();
    let sent = accounts.send_many(keys.iter().map(|key| (key, Credit { amount: 1 }))).collect().await.unwrap();
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    bed.run_until_idle().await;
    for (is_by_key, filter) in [(false, Filter::default()), (true, Filter::default().key_prefix("a-"))] {
        for limit in [1, 7, 50, 100] {
            let (mut listed, mut filter) = (Vec::new(), filter.clone().limit(limit));
            loop {
                let page = accounts.list(filter.clone()).await.unwrap();
                assert!(page.items.len() <= limit as usize && page.unreadable.is_empty());
                listed.extend(page.items.into_iter().map(|account| (account.id, account.key)));
                match page.next {
                    Some(next) => filter = filter.after(next),
                    None => break,
                }
            }
            let is_sorted = if is_by_key { listed.is_sorted_by_key(|(_, key)| key) } else { listed.is_sorted_by_key(|(id, _)| id) };
            assert!(is_sorted, "with pages of {limit}: {listed:?}");
            let mut found: Vec<_> = listed.into_iter().map(|(_, key)| key).collect();
            found.sort();
            assert_eq!(found, keys, "with pages of {limit}");
        }
    }
    let counts = accounts.counts().await.unwrap();
    assert_eq!(counts.iter().map(|count| (count.status, count.count)).collect::<Vec<_>>(), [(Status::Running, 50)]);
    let done = accounts.bulk(Filter::default()).cancel("all of them").await.unwrap();
    assert_eq!((done.done.len(), done.refused.len()), (50, 0));
}

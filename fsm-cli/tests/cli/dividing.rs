//! Export and import between databases with and without partitions.

use fsm::Schedule;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_core::partition::partition_of;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::partitions::Site;
use crate::shop::{Order, OrderState, Placed, three};
use crate::support::{File, Said, To, fsm_at, healthy};

const PARTITIONS: u32 = 4;
const A_MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Book {
    amounts: Vec<u32>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Credit {
    amount: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Transfer {
    to: String,
    amounts: Vec<u32>,
    after: Option<Duration>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Branch {
    account: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Drip;

#[verb]
async fn credited(book: &mut Book, event: Credit) -> Result {
    book.amounts.push(event.amount);
    Ok(())
}
#[verb]
async fn transferred(ctx: &mut Ctx<'_>, event: Transfer) -> Result {
    for amount in event.amounts {
        let credit = ctx.send::<Account>(&event.to, Credit { amount })?;
        if let Some(wait) = event.after {
            credit.after(wait);
        }
    }
    Ok(())
}
#[verb]
async fn branched(ctx: &mut Ctx<'_>, event: Branch) -> Result {
    ctx.child::<Account>(&event.account, Credit { amount: 1 })?;
    Ok(())
}
#[verb(limit = "drip")]
async fn dripped(_event: Drip) -> Result {
    Ok(())
}

fsm! {
    machine Account = "account" {
        keeps Book;
        start credited;
        credited -> credited;
    }
}
fsm! {
    machine Bank = "bank" {
        start transferred | branched;
        any(transferred, branched) -> transferred | branched;
    }
}
fsm! {
    machine Tap = "tap" {
        start dripped;
        end dripped;
    }
}

fn bank() -> TestBedBuilder {
    TestBed::builder().only::<Account>().only::<Bank>().only::<Order>().with(|builder| builder.inbox_limit(2))
}

/// The first keys of this form in each partition, in the order of the partitions.
fn one_in_each(form: &str) -> Vec<String> {
    let key = |n: u32| format!("{form}-{n}");
    (0..PARTITIONS).map(|partition| (0..).map(key).find(|key| partition_of(key, PARTITIONS) == partition).unwrap()).collect()
}

fn transfer(to: &str, amounts: &[u32]) -> Transfer {
    Transfer { to: to.to_owned(), amounts: amounts.to_vec(), after: None }
}

async fn on(bed: &TestBed, url: &str, words: &[&str]) -> Said {
    let all: Vec<&str> = ["--database", url].iter().chain(words).copied().collect();
    fsm_at(Some(bed.now()), To::Pipe, &all).await
}

async fn says(bed: &TestBed, url: &str, words: &[&str], code: u8, part: &str) {
    let said = on(bed, url, words).await;
    assert!(said.code == code && said.talk.contains(part), "fsm {}: {said:?}", words.join(" "));
}

/// The rows of an export, sorted: without definitions, which each start writes, and without events that wait, which move between two outboxes.
async fn rows(bed: &TestBed, url: &str) -> Vec<String> {
    let said = on(bed, url, &["export", "--live"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let is_row = |line: &&str| line.contains(r#""table":""#) && !line.contains(r#""table":"machines""#) && !line.contains("outbox\"");
    let mut lines: Vec<_> = said.out.lines().filter(is_row).map(str::to_owned).collect();
    lines.sort();
    lines
}

async fn amounts(bed: &TestBed, key: &str) -> Vec<u32> {
    bed.machine::<Account>().get(key).await.unwrap().map(|account| account.record.amounts).unwrap_or_default()
}

async fn count(url: &str, query: &str) -> i64 {
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut conn).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_divided_and_joined_and_its_instances_go_on() {
    let (file, export) = (File::new(), File::new());
    let hourly = Schedule::every("1h").name("hourly").send::<Order>(|due| (format!("s-{}", due.at()), Placed { cents: 1, fails: 0 }));
    let source = bank().schedule(hourly).on(&file.url()).await;
    let (banks, accounts) = (one_in_each("bank"), one_in_each("account"));
    three(&source).await;
    for (n, account) in (0..).zip(&accounts) {
        source.machine::<Account>().send(account, Credit { amount: n }).dedup("first").await.unwrap();
    }
    source.run_until_idle().await;
    // The inbox of an account is full: events of two banks wait, one of them in the same partition later. The first of the line is from elsewhere.
    let (account, near, far) = (&accounts[1], &banks[1], &banks[0]);
    source.machine::<Account>().pause(account).reason("audit").await.unwrap();
    for (bank, amounts) in [(far, [10, 11, 12, 13]), (near, [20, 21, 22, 23]), (far, [14, 15, 16, 17])] {
        source.machine::<Bank>().send(bank, transfer(account, &amounts)).await.unwrap();
        source.run_until_idle().await;
    }
    let delayed = Transfer { after: Some(A_MINUTE), ..transfer(&accounts[3], &[99]) };
    source.machine::<Bank>().send(far, delayed).await.unwrap();
    source.run_until_idle().await;

    says(&source, &file.url(), &["export", "--live", "-o", export.path()], 0, "rows of").await;
    let target = bank().partitions(PARTITIONS).await;
    target.advance(Duration::from_secs(2)).await;
    says(&target, target.url(), &["import", export.path()], 0, "were imported").await;
    assert_eq!(rows(&target, target.url()).await, rows(&source, &file.url()).await);
    says(&target, target.url(), &["partitions", "check"], 0, "").await;
    healthy(&target).await;
    let schedules: Value = serde_json::from_str(&on(&target, target.url(), &["schedules", "--json"]).await.out).unwrap();
    assert_eq!(schedules["schedules"][0]["partition"], json!(partition_of("hourly", PARTITIONS)));
    let schema = |partition: u32| format!("fsm_{partition:04}");
    // Partition 0 is in the database of the directory.
    let elsewhere = count(target.url(), &format!("select count(*) from {}.fsm_partition_outbox where partition = 1", schema(0))).await;
    assert!(elsewhere > 4, "{elsewhere} events of the bank in partition 0 wait for partition 1");

    target.machine::<Account>().resume(account).await.unwrap();
    target.machine::<Bank>().send(far, transfer(account, &[18])).await.unwrap();
    target.advance(2 * A_MINUTE).await;
    let arrived = amounts(&target, account).await;
    let of = |tens: u32| arrived.iter().copied().filter(|amount| amount / 10 == tens).collect::<Vec<_>>();
    assert_eq!((of(1), of(2)), ((10..=18).collect(), (20..=23).collect()), "{arrived:?}");
    assert_eq!(amounts(&target, &accounts[3]).await, [3, 99], "the delayed event came once");
    let again = target.machine::<Account>().send(&accounts[2], Credit { amount: 2 }).dedup("first").await.unwrap();
    assert_eq!(again.outcome, fsm::SendOutcome::Duplicate, "the dedup id is known");
    target.machine::<Order>().retry("o-2").await.unwrap();
    target.advance(30 * A_MINUTE).await;
    assert_eq!(target.machine::<Order>().get("o-1").await.unwrap().unwrap().state, Some(OrderState::Expired), "its timer came");
    healthy(&target).await;

    // All in one database again.
    let (joined, back) = (File::new(), File::new());
    says(&target, target.url(), &["export", "--live", "-o", back.path()], 0, "rows of the 4 partitions").await;
    says(&target, joined.path(), &["import", back.path()], 0, "were imported").await;
    assert_eq!(rows(&target, &joined.url()).await, rows(&target, target.url()).await);
    let joined = bank().on(&joined.url()).await;
    joined.advance(target.now().since(joined.now())).await;
    joined.machine::<Bank>().send(far, transfer(account, &[19])).await.unwrap();
    joined.run_until_idle().await;
    assert_eq!(amounts(&joined, account).await.last(), Some(&19));
    healthy(&joined).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_partitions_cannot_have_is_refused_and_nothing_is_imported() {
    let (banks, accounts) = (one_in_each("bank"), one_in_each("account"));
    // A child in another partition than its parent.
    let (file, export) = (File::new(), File::new());
    let source = bank().on(&file.url()).await;
    source.machine::<Bank>().send(&banks[2], Branch { account: accounts[3].clone() }).await.unwrap();
    source.machine::<Bank>().send("bank-{acme}", Branch { account: "account-{acme}".into() }).await.unwrap();
    source.run_until_idle().await;
    says(&source, &file.url(), &["export", "--live", "-o", export.path()], 0, "").await;
    let site = Site::new().await;
    site.says(&["partitions", "init", "4"], 0, "").await;
    let (child, parent) = (&accounts[3], &banks[2]);
    let apart =
        format!("`account` `{child}` belongs to partition 3, and its parent `bank` `{parent}` to partition 2: it was started together");
    site.says(&["import", export.path()], 1, &apart).await;
    site.says(&["import", export.path()], 1, "nothing was imported").await;
    // The child may come before its parent.
    let text = std::fs::read_to_string(export.path()).unwrap();
    let (instances, others): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains(r#""table":"instances""#));
    let definitions = others.iter().filter(|line| line.contains("fsm_export") || line.contains(r#""table":"machines""#)).count();
    let reversed = [&others[..definitions], &instances.into_iter().rev().collect::<Vec<_>>(), &others[definitions..]].concat().join("\n");
    std::fs::write(export.path(), reversed).unwrap();
    site.says(&["import", export.path()], 1, &apart).await;
    for partition in 0..PARTITIONS {
        assert_eq!(count(site.url(), &format!("select count(*) from fsm_{partition:04}.fsm_instances")).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_a_limit_wait_in_the_partitions_and_start_there() {
    let (file, export) = (File::new(), File::new());
    let taps = |limit| TestBed::builder().only::<Tap>().limit("drip", limit);
    let source = taps(Limit::concurrency(0)).on(&file.url()).await;
    for n in 0..20 {
        source.machine::<Tap>().send(format!("tap-{n}"), Drip).await.unwrap();
    }
    source.run_until_idle().await;
    says(&source, &file.url(), &["export", "--live", "-o", export.path()], 0, "").await;
    let target = taps(Limit::concurrency(2)).partitions(PARTITIONS).await;
    says(&target, target.url(), &["import", export.path()], 0, "").await;
    let limits = on(&target, target.url(), &["limits"]).await;
    assert!(limits.out.lines().count() == 1 && limits.out.contains("\t20\t"), "{limits:?}");
    says(&target, target.url(), &["limits", "set", "drip", "--concurrency", "3"], 0, "").await;
    let of_one = ["--partition", "1", "limits", "set", "drip", "--concurrency", "4"];
    says(&target, target.url(), &of_one, 2, "one setting for all partitions").await;
    assert_eq!(count(target.url(), "select concurrency from fsm_0000.fsm_limits").await, 3);
    target.run_until_idle().await;
    let ended = target.machine::<Tap>().counts().await.unwrap();
    assert_eq!(ended.iter().map(|count| (count.status, count.count)).collect::<Vec<_>>(), [(Status::Completed, 20)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_waits_for_another_partition_is_not_imported_where_there_is_none() {
    let (banks, accounts) = (one_in_each("bank"), one_in_each("account"));
    let (export, joined) = (File::new(), File::new());
    let source = bank().partitions(PARTITIONS).await;
    // At first nothing delivers it.
    source.machine::<Bank>().send(&banks[0], transfer(&accounts[2], &[1])).await.unwrap();
    let delayed = Transfer { after: Some(A_MINUTE), ..transfer(&accounts[2], &[2]) };
    source.machine::<Bank>().send(&banks[0], delayed).await.unwrap();
    for _ in 0..200 {
        if count(source.url(), "select count(*) from fsm_0000.fsm_partition_outbox").await == 2 {
            break;
        }
        tokio::task::yield_now().await;
    }
    says(&source, source.url(), &["export", "--live", "-o", export.path()], 0, "").await;
    let waits = format!("the event `Credit` to `account` `{}` waits in the outbox of a partition", accounts[2]);
    says(&source, joined.path(), &["import", export.path()], 1, &waits).await;
    assert_eq!(on(&source, joined.path(), &["ls"]).await.out, "");
    // With another number of partitions both may be in one of them: the first event is refused there, and the delayed one is delivered.
    let of = (2..).find(|of| partition_of(&banks[0], *of) == partition_of(&accounts[2], *of)).unwrap();
    let target = bank().partitions(of).await;
    says(&target, target.url(), &["import", export.path()], 1, &waits).await;
    source.run_until_idle().await;
    assert_eq!(amounts(&source, &accounts[2]).await, [1]);
    let later = File::new();
    says(&source, source.url(), &["export", "--live", "-o", later.path()], 0, "").await;
    says(&target, target.url(), &["import", later.path()], 0, "").await;
    target.advance(2 * A_MINUTE).await;
    assert_eq!(amounts(&target, &accounts[2]).await, [1, 2]);
    healthy(&target).await;
}

/// Adds an event of a deleted sender to the export. It waits in the outbox of the partition of this key.
fn with_event_that_waits(export: &str, key: &str) {
    let text = std::fs::read_to_string(export).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let id = |last: u32| format!("018f0000-0000-7000-8000-{last:012}");
    let row = json!({
        "partition": 0, "sender": id(1), "machine": "order", "key": key, "call_id": id(2), "event": "Placed", "payload": r#"{"cents":1,"fails":0}"#,
        "created_at": 1, "deliver_at": null, "due_at": 1, "tries": 0, "priority": null, "notice": null, "schedule": null, "moment": null,
    });
    let mut end: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    end["end"]["rows"] = json!(end["end"]["rows"].as_u64().unwrap() + 1);
    lines.push(json!({ "table": "partition_outbox", "row": row }).to_string());
    lines.push(end.to_string());
    std::fs::write(export, lines.join("\n")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_failed_between_two_partitions_can_be_repeated() {
    let (file, export) = (File::new(), File::new());
    let source = bank().on(&file.url()).await;
    let keys = (0..40).map(|n| format!("o-{n}"));
    // The first partition gets no instance. An event for one waits in its outbox.
    let (waits, keys): (Vec<_>, Vec<_>) = keys.partition(|key| partition_of(key, PARTITIONS) == 0);
    for key in &keys {
        source.machine::<Order>().send(key, Placed { cents: 1, fails: 0 }).await.unwrap();
    }
    source.run_until_idle().await;
    says(&source, &file.url(), &["export", "--live", "-o", export.path()], 0, "").await;
    with_event_that_waits(export.path(), &waits[0]);
    let site = Site::new().await;
    site.says(&["partitions", "init", "4"], 0, "").await;
    site.sql(
        "create function fsm_0002.refuse() returns trigger language plpgsql as $$ begin raise exception 'the disk is full'; end $$;
         create constraint trigger refuse after insert on fsm_0002.fsm_instances deferrable initially deferred
             for each row execute function fsm_0002.refuse()",
    )
    .await;
    site.says(&["import", export.path()], 7, "2 of 4 partitions have their rows, and the import can be repeated for the others").await;
    let instances = async |partition: u32| count(site.url(), &format!("select count(*) from fsm_{partition:04}.fsm_instances")).await;
    let waiting = async || count(site.url(), "select count(*) from fsm_0000.fsm_partition_outbox").await;
    assert!(instances(0).await == 0 && instances(1).await > 0 && waiting().await == 1);
    assert_eq!((instances(2).await, instances(3).await), (0, 0));

    site.sql("drop trigger refuse on fsm_0002.fsm_instances").await;
    // Another export is not mixed with what is there.
    let text = std::fs::read_to_string(export.path()).unwrap();
    let other = File::new();
    let key = keys.iter().find(|key| partition_of(key, PARTITIONS) == 1).unwrap();
    let missing: Vec<_> =
        text.lines().filter(|line| !(line.contains(r#""table":"instances""#) && line.contains(&format!(r#""key":"{key}""#)))).collect();
    std::fs::write(other.path(), missing.join("\n")).unwrap();
    site.says(&["import", other.path()], 5, "has instances of `order` already; nothing is ever overwritten").await;
    assert_eq!((instances(2).await, instances(3).await), (0, 0));

    let imported = site.json(&["import", export.path()]).await;
    assert_eq!((&imported["there_already"], waiting().await), (&json!([1]), 1));
    let mut sum = 0;
    for partition in 0..PARTITIONS {
        sum += instances(partition).await;
    }
    assert_eq!(usize::try_from(sum).unwrap(), keys.len());
    let all = imported["rows"].as_u64().unwrap();
    assert!(all > 0 && all < text.lines().count() as u64, "only the rows of two partitions: {imported}");
    site.says(&["doctor", "--deep"], 0, "").await;
    site.says(&["partitions", "check"], 0, "").await;
    // Once more: the partition without instances gets nothing twice.
    site.says(&["import", export.path()], 0, "the partitions 1, 2, 3 had their rows already").await;
    assert_eq!(waiting().await, 1);
    let ended: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(ended["end"]["rows"].as_u64().is_some());
}

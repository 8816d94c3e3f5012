//! Lists, counts and bulk acts on a database with partitions show the same as on one without.

use std::time::{Duration, Instant};

use fsm::Schedule;
use fsm::testing::TestBed;
use fsm_core::partition::partition_of;
use serde_json::{Value, json};

use crate::partitions::Site;
use crate::shop::{Order, Paid, Placed, Shipped, orders};
use crate::support::{Said, To, WIDE, fsm, healthy, json};

const PARTITIONS: u32 = 4;
const ORDERS: u32 = 24;

/// Creates orders that rest, that are in error, that wait for a retry, and that have ended, and a schedule.
async fn busy(bed: &TestBed) {
    let orders = bed.machine::<Order>();
    for n in 0..ORDERS {
        let key = format!("o-{n:02}");
        orders.send(&key, Placed { cents: n.into(), fails: if n % 6 == 0 { 9 } else { 0 } }).await.unwrap();
        bed.run_until_idle().await;
        match n % 6 {
            1 => drop(orders.send(&key, Paid { receipt: String::new() }).await.unwrap()),
            2 => {
                orders.send(&key, Paid { receipt: "r".into() }).await.unwrap();
                orders.send(&key, Shipped).await.unwrap();
            }
            3 => orders.pause(&key).await.unwrap(),
            _ => {}
        }
        bed.run_until_idle().await;
        bed.advance(Duration::from_millis(10)).await;
    }
}

/// Two databases with the same instances: one without partitions and one with.
async fn both() -> [TestBed; 2] {
    let schedule = || Schedule::every("1h").name("hourly").send::<Order>(|due| (format!("s-{}", due.at()), Placed { cents: 1, fails: 0 }));
    let both = [orders().schedule(schedule()).postgres().await, orders().schedule(schedule()).partitions(PARTITIONS).await];
    for bed in &both {
        busy(bed).await;
    }
    both
}

/// Removes what differs between two databases: ids, times of definitions, and the number of the partition.
fn comparable(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            for name in ["id", "call", "worker", "session", "lease_until", "next", "partition"] {
                if members.get(name).is_some_and(|value| !value.is_object()) {
                    members.remove(name);
                }
            }
            members.values_mut().for_each(|member| *member = comparable(member.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = comparable(item.take())),
        _ => {}
    }
    value
}

fn keys(told: &Value) -> Vec<String> {
    told["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect()
}

/// All keys, page by page, with the number of pages.
async fn paged(bed: &TestBed, words: &[&str]) -> (Vec<String>, usize) {
    let (mut all, mut pages, mut after) = (Vec::new(), 0, None::<String>);
    loop {
        let next = after.iter().flat_map(|after| ["--after", after.as_str()]);
        let told = json(bed, &words.iter().copied().chain(next).collect::<Vec<_>>()).await;
        all.extend(keys(&told));
        pages += 1;
        match told["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return (all, pages),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_counts_are_those_of_one_database() {
    let [one, many] = both().await;
    let lists: [&[&str]; 13] = [
        &["machines"],
        &["ls", "--limit", "100"],
        &["ls", "order", "--status", "error"],
        &["ls", "--key", "o-1*"],
        &["ls", "--paused", "--oldest"],
        &["errors"],
        &["errors", "order", "--all"],
        &["errors", "--rejected"],
        &["due", "--limit", "5"],
        &["stats"],
        &["schedules"],
        &["graph", "order", "--counts"],
        &["limits"],
    ];
    for words in lists {
        let (alone, merged) = (json(&one, words).await, json(&many, words).await);
        assert_eq!(comparable(merged), comparable(alone), "fsm {}", words.join(" "));
    }
    let due = json(&many, &["due", "--limit", "5"]).await;
    assert_eq!(due["due"].as_array().unwrap().len(), 5);
    for row in due["due"].as_array().unwrap() {
        assert_eq!(row["partition"], json!(partition_of(row["key"].as_str().unwrap(), PARTITIONS)));
    }
    assert_eq!(json(&one, &["ls"]).await["instances"][0].get("partition"), None);
    assert_eq!(json(&many, &["schedules"]).await["schedules"][0]["partition"], json!(partition_of("hourly", PARTITIONS)));

    for words in [&["ls"] as &[&str], &["ls", "--oldest"], &["ls", "--key", "o-*"], &["ls", "order", "--status", "running"]] {
        for limit in ["7", "24"] {
            let words: Vec<_> = words.iter().copied().chain(["--limit", limit]).collect();
            let (alone, merged) = (paged(&one, &words).await, paged(&many, &words).await);
            assert_eq!(merged.0, alone.0, "fsm {}", words.join(" "));
            assert!(merged.1 >= alone.1 && alone.0.len() > 5, "{} and {} pages", merged.1, alone.1);
        }
    }
    let children = fsm(&many, To::Pipe, &["ls", "--parent", "order/o-01"]).await;
    assert_eq!((children.code, children.out.as_str()), (0, ""), "{children:?}");
    let missing = fsm(&many, To::Pipe, &["ls", "--parent", "order/o-99"]).await;
    assert!(missing.code == 3 && missing.talk.contains("there is no `order` `o-99`"), "{missing:?}");

    let workers = fsm(&many, WIDE, &["workers"]).await.out;
    let numbers: Vec<_> = workers.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(numbers, ["PARTITION", "0", "1", "2", "3"], "{workers}");
    assert!(!fsm(&one, WIDE, &["workers"]).await.out.contains("PARTITION"));
    let simulated = fsm(&many, To::Pipe, &["simulate", "order", "placed"]).await;
    assert_eq!(simulated, fsm(&one, To::Pipe, &["simulate", "order", "placed"]).await);
    for bed in [one, many] {
        healthy(&bed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_on_many_instances_or_on_a_schedule_reaches_all_partitions() {
    let [one, many] = both().await;
    let acts: [&[&str]; 5] = [
        &["cancel", "order", "--status", "error", "--dry-run"],
        &["pause", "order", "--retrying", "--yes"],
        &["resume", "order", "--paused", "--yes"],
        &["cancel", "order", "--status", "error", "--yes"],
        &["retry", "order", "--key", "o-*", "--yes"],
    ];
    for words in acts {
        let [alone, merged] = [fsm(&one, To::Pipe, words).await, fsm(&many, To::Pipe, words).await];
        assert_eq!(merged, alone, "fsm {}", words.join(" "));
        assert!(alone.out.lines().count() >= 4, "{alone:?}");
    }
    let counted = |bed| async move { comparable(json(bed, &["graph", "order", "--counts"]).await) };
    assert_eq!(counted(&many).await, counted(&one).await);
    let paused = fsm(&many, To::Pipe, &["schedules", "pause", "hourly"]).await;
    assert_eq!((paused.code, paused.talk.as_str()), (0, "the schedule `hourly` is paused\n"));
    let missing = fsm(&many, To::Pipe, &["schedules", "pause", "weekly"]).await;
    assert!(missing.code == 3 && missing.talk.contains("there are `hourly`"), "{missing:?}");
    for bed in [one, many] {
        healthy(&bed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_read_hides_no_other() {
    let site = Site::with_orders(3).await;
    let keys: Vec<String> = (0..9).map(|n| format!("o-{n}")).collect();
    for key in &keys {
        site.says(&["send", "order", key, "Placed", r#"{"cents":1,"fails":0}"#], 0, "").await;
    }
    let there = keys.iter().filter(|key| partition_of(key, 3) != 1).count();
    assert!(there > 0 && there < keys.len());
    // At first its tables are damaged, and then it is gone.
    for (damage, why) in
        [("alter table fsm_0001.fsm_workers rename to away", "fsm_workers"), ("drop schema fsm_0001 cascade", "does not exist")]
    {
        site.sql(damage).await;
        let lists: [&[&str]; 5] = [&["ls"], &["workers"], &["due"], &["ls", "order", "--key", "o-*"], &["ls", "--json"]];
        // The first two read the damaged table.
        for words in lists.into_iter().take(if why == "fsm_workers" { 2 } else { 5 }) {
            let begun = Instant::now();
            let Said { code, out, talk } = site.fsm(To::Pipe, words).await;
            let warnings = talk.lines().filter(|line| line.starts_with("warning: partition 1 is left out: ") && line.contains(why)).count();
            assert!(code == 7 && warnings == 1, "{words:?}: {talk}");
            // The tables may be on their way to another server, and the others do not wait for that.
            assert!(begun.elapsed() < Duration::from_secs(8), "{words:?} took {:?}", begun.elapsed());
            assert!(talk.ends_with("fsm: 1 of 3 partitions could not be read\n"), "{words:?}: {talk}");
            let of_others = keys.iter().filter(|key| partition_of(key, 3) != 1).filter(|key| out.contains(key.as_str())).count();
            assert_eq!(of_others, if words[0] == "workers" { 0 } else { there }, "{words:?}: {out}");
        }
    }
    for words in [&["machines"] as &[&str], &["errors"], &["errors", "--rejected"], &["stats"], &["schedules"], &["graph", "order"]] {
        site.says(words, 7, "warning: partition 1 is left out: ").await;
    }
    site.says(&["export"], 7, "does not exist").await;
    let cancelled = site.fsm(To::Pipe, &["cancel", "order", "--status", "running", "--yes"]).await;
    assert!(cancelled.code == 7 && cancelled.talk.contains("warning: partition 1 is left out: "), "{cancelled:?}");
    assert_eq!(cancelled.out.lines().filter(|line| line.ends_with("\tcancelled")).count(), there, "{cancelled:?}");
    // One partition alone is not concerned.
    site.says(&["ls", "--partition", "0"], 0, "").await;
    site.sql("drop schema fsm_0000 cascade; drop schema fsm_0002 cascade").await;
    site.says(&["ls"], 7, "does not exist").await;
}

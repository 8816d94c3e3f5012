//! Export and import: all rows are equal, and the instances continue in the new database.

use std::time::Duration;

use fsm::Status;
use fsm::testing::TestBed;
use serde_json::{Value, json};

use crate::shop::{Order, OrderState, Paid, Placed, Shipped, orders, three};
use crate::support::{File, Said, To, fsm_at, healthy};

/// Runs the command on this database, at the time of this test bed's clock.
async fn on(bed: &TestBed, url: &str, words: &[&str]) -> Said {
    let all: Vec<&str> = ["--database", url].iter().chain(words).copied().collect();
    fsm_at(Some(bed.now()), To::Pipe, &all).await
}

/// The lines of an export of the database, without the first line, which holds the time.
async fn rows(bed: &TestBed, url: &str) -> Vec<String> {
    let said = on(bed, url, &["export", "--live"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let mut lines: Vec<_> = said.out.lines().skip(1).map(str::to_owned).collect();
    // A process writes the definitions again when it starts, and the last line counts them.
    lines.retain(|line| !line.contains(r#""table":"machines""#) && !line.contains(r#"{"end""#));
    lines.sort();
    lines
}

/// Creates an instance of every kind: waiting for a retry, in error, ended, idle, paused with an event in its inbox, and with a delayed
/// event; with dedup ids and notes.
async fn busy(bed: &TestBed) {
    three(bed).await;
    let orders = bed.machine::<Order>();
    orders.send("o-4", Placed { cents: 400, fails: 0 }).dedup("d-4").await.unwrap();
    orders.send("o-5", Placed { cents: 500, fails: 9 }).await.unwrap();
    bed.run_until_idle().await;
    orders.pause("o-5").reason("an \u{1b}[31modd\nreason").actor("bob").await.unwrap();
    orders.send("o-5", Paid { receipt: "r-5".into() }).await.unwrap();
    orders.send("o-4", Paid { receipt: "r-4".into() }).after(Duration::from_secs(60)).await.unwrap();
    bed.run_until_idle().await;
}

/// Checks the instances, and that they continue by themselves and accept new events.
async fn goes_on(bed: &TestBed) {
    let orders = bed.machine::<Order>();
    healthy(bed).await;
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(20)).await;
    let waits = orders.get("o-1").await.unwrap().unwrap();
    assert_eq!((waits.state, waits.status), (Some(OrderState::Placed), Status::Running), "its retries went on");
    bed.advance(Duration::from_secs(60)).await;
    let delayed = orders.get("o-4").await.unwrap().unwrap();
    assert_eq!(delayed.state, Some(OrderState::Paid), "the delayed event came");
    orders.send("o-4", Shipped).await.unwrap();
    orders.retry("o-2").await.unwrap();
    orders.resume("o-5").await.unwrap();
    bed.run_until_idle().await;
    bed.advance(Duration::from_secs(7200)).await;
    let statuses = ["o-1", "o-2", "o-3", "o-4", "o-5"].map(|key| orders.get(key));
    let mut found = Vec::new();
    for one in statuses {
        found.push(one.await.unwrap().unwrap().status);
    }
    let ended = Status::Completed;
    assert_eq!(found, [ended, Status::Error, ended, ended, Status::Running], "o-1 expired by its timer, o-2 failed once more, o-5 is paid");
    assert_eq!(orders.get("o-5").await.unwrap().unwrap().state, Some(OrderState::Paid));
    let again = orders.send("o-4", Placed { cents: 400, fails: 0 }).dedup("d-4").await.unwrap();
    assert_eq!(again.outcome, fsm::SendOutcome::Duplicate, "the dedup id is known");
    healthy(bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_sqlite_goes_on_on_postgresql_and_back() {
    let (first, last, export) = (File::new(), File::new(), File::new());
    let source = orders().on(&first.url()).await;
    busy(&source).await;
    let said = on(&source, &first.url(), &["export", "--live", "--output", export.path()]).await;
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    let target = orders().postgres().await;
    let said = on(&source, target.url(), &["import", export.path()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.talk.contains("rows of `order` were imported"), "{said:?}");
    assert_eq!(rows(&source, target.url()).await, rows(&source, &first.url()).await);
    // Back again, into a new file.
    let back = File::new();
    let said = on(&source, target.url(), &["export", "order", "--live", "-o", back.path()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = on(&source, last.path(), &["import", back.path(), "--json"]).await;
    let told: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &told["machines"], &told["executing"]), (0, &json!(["order"]), &json!(0)), "{said:?}");
    assert_eq!(rows(&source, &last.url()).await, rows(&source, &first.url()).await);
    // A test bed's clock starts in 2030, and the databases are two seconds ahead.
    target.advance(Duration::from_secs(2)).await;
    goes_on(&target).await;
    let returned = orders().on(&last.url()).await;
    returned.advance(Duration::from_secs(2)).await;
    goes_on(&returned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_overwritten_and_nothing_is_half_imported() {
    let (file, export) = (File::new(), File::new());
    let bed = orders().on(&file.url()).await;
    busy(&bed).await;
    let live = on(&bed, &file.url(), &["export"]).await;
    assert_eq!((live.code, live.out.as_str()), (4, ""), "{live:?}");
    assert!(live.talk.contains("1 processes work on") && live.talk.contains("--live exports all the same"), "{live:?}");
    assert_eq!(on(&bed, &file.url(), &["export", "--live", "-o", export.path()]).await.code, 0);
    let again = on(&bed, &file.url(), &["export", "--live", "-o", export.path()]).await;
    assert_eq!(again.code, 1, "a file that is there is left alone: {again:?}");
    let over = on(&bed, &file.url(), &["import", export.path()]).await;
    assert_eq!(over.code, 5, "{over:?}");
    assert!(over.talk.contains("has instances of `order` already; nothing is ever overwritten"), "{over:?}");

    let text = std::fs::read_to_string(export.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines[..lines.len() - 1].join("\n");
    let short = [&lines[..3], &lines[lines.len() - 1..]].concat().join("\n");
    let cases = [
        (cut, 2, "the export is cut off after"),
        (short, 1, "2 rows were read, and the export had"),
        (text.replacen(r#""machine":"order""#, r#""machine":"other""#, 1), 1, "line 2: a row is of the machine `other`"),
        (text.replacen(r#""schema":"#, r#""schema":9"#, 1), 1, "line 1: the export is of schema 9"),
        (text.replacen(r#""table":"instances""#, r#""table":"workers""#, 1), 1, "there is no table `workers`"),
        (text.replacen(r#""paused":"#, r#""paused":0, "was":"#, 1), 1, "a row of `instances` has 53 fields, not 54"),
        (format!("{text}{{}}"), 1, "there is more after the end of the export"),
        ("a shopping list\n".to_owned(), 1, "line 1: the line is not JSON"),
        (String::new(), 2, "the export is cut off after 0 rows"),
    ];
    for (text, code, talk) in cases {
        let (target, bad) = (File::new(), File::new());
        std::fs::write(bad.path(), text).unwrap();
        let said = on(&bed, target.path(), &["import", bad.path()]).await;
        assert_eq!(said.code, code, "{said:?}");
        assert!(said.talk.contains(talk), "{talk}: {said:?}");
        let left = on(&bed, target.path(), &["ls"]).await;
        assert_eq!((left.code, left.out.as_str()), (0, ""), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_an_export_keep_their_shape() {
    let file = File::new();
    let bed = orders().on(&file.url()).await;
    busy(&bed).await;
    let said = on(&bed, &file.url(), &["export", "--live"]).await;
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut shape = format!("{}\n", lines[0]);
    let mut seen: Vec<String> = Vec::new();
    for line in &lines[1..lines.len() - 1] {
        let names: Vec<_> = line["row"].as_object().unwrap().keys().cloned().collect();
        let table = line["table"].as_str().unwrap().to_owned();
        if !seen.contains(&table) {
            shape.push_str(&format!("{table}: {}\n", names.join(", ")));
            seen.push(table);
        }
    }
    assert!(lines.last().unwrap()["end"]["rows"].as_u64() == Some(lines.len() as u64 - 2));
    crate::support::is_golden("export", &shape);
}

/// An export contains all payloads in plain text.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn an_export_can_be_read_by_its_owner_alone_and_follows_no_link() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let (file, export, link, led_to) = (File::new(), File::new(), File::new(), File::new());
    let bed = orders().on(&file.url()).await;
    assert_eq!(on(&bed, &file.url(), &["export", "--live", "-o", export.path()]).await.code, 0);
    assert_eq!(std::fs::metadata(export.path()).unwrap().permissions().mode() & 0o777, 0o600);
    symlink(led_to.path(), link.path()).unwrap();
    let said = on(&bed, &file.url(), &["export", "--live", "-o", link.path()]).await;
    assert_eq!((said.code, std::fs::exists(led_to.path()).unwrap()), (1, false), "{said:?}");
}

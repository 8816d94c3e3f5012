//! `fsm partitions`, and the other commands on a PostgreSQL database with partitions.

use fsm::Timestamp;
use fsm_core::partition::partition_of;
use fsm_store::testing::Fresh;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::shop::{Order, Placed, orders};
use crate::support::{File, Said, To, WIDE, fsm_at, is_golden};

/// The start of 2030.
const NOW: Timestamp = Timestamp::from_micros(1_893_456_000_000_000);
const PLACED: &str = r#"{"cents":1,"fails":0}"#;

/// A database without tables of its own.
pub struct Site(Fresh);

impl Site {
    pub async fn new() -> Site {
        Site(Fresh::empty().await.expect("these tests need PostgreSQL"))
    }

    /// A database with partitions in which the machine `order` was started.
    pub async fn with_orders(partitions: usize) -> Site {
        let site = Site::new().await;
        let said = site.fsm(To::Pipe, &["partitions", "init", &partitions.to_string()]).await;
        assert_eq!(said.code, 0, "{said:?}");
        let bed = orders().postgres().await;
        let mut conn = PgConnection::connect(bed.url()).await.unwrap();
        let row: String = sqlx::query_scalar("select to_json(m)::text from fsm_machines m").fetch_one(&mut conn).await.unwrap();
        for number in 0..partitions {
            let table = format!("fsm_{number:04}.fsm_machines");
            site.sql(&format!("insert into {table} select * from json_populate_record(null::{table}, $row${row}$row$)")).await;
        }
        site
    }

    pub async fn sql(&self, script: &str) {
        let mut conn = PgConnection::connect(self.0.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(script.to_owned())).execute(&mut conn).await.unwrap();
    }

    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// Runs the command on this database.
    pub async fn fsm(&self, to: To, words: &[&str]) -> Said {
        let all: Vec<&str> = ["--database", self.0.url()].iter().chain(words).copied().collect();
        fsm_at(Some(NOW), to, &all).await
    }

    pub async fn json(&self, words: &[&str]) -> Value {
        let all: Vec<&str> = words.iter().chain(&["--json"]).copied().collect();
        let said = self.fsm(To::Pipe, &all).await;
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error} in {said:?}"))
    }

    /// Checks the exit code and a part of the messages.
    pub async fn says(&self, words: &[&str], code: u8, part: &str) {
        let said = self.fsm(To::Pipe, words).await;
        assert!(said.code == code && said.talk.contains(part), "fsm {}: {said:?}", words.join(" "));
    }

    /// Compares the output on a terminal, into a pipe and as JSON with a golden file.
    async fn golden(&self, name: &str, words: &[&str]) {
        let mut told = String::new();
        let with_json: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        for (how, to, words) in [("on a terminal", WIDE, words), ("into a pipe", To::Pipe, words), ("as JSON", WIDE, &with_json)] {
            let Said { code, out, talk } = self.fsm(to, words).await;
            told.push_str(&format!("# fsm {} · {how}\n{out}", words.join(" ")));
            told.push_str(&talk.lines().map(|line| format!("(talk) {line}\n")).collect::<String>());
            told.push_str(&format!("(code) {code}\n\n"));
        }
        is_golden(name, &told);
    }

    async fn send(&self, key: &str) {
        self.says(&["send", "order", key, "Placed", PLACED], 0, "").await;
    }

    /// The keys of the instances in a partition, in their order.
    async fn keys(&self, partition: u32) -> Vec<String> {
        let listed = self.json(&["ls", "order", "--partition", &partition.to_string()]).await;
        let mut keys: Vec<_> = listed["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_created_listed_and_checked() {
    let site = Site::new().await;
    site.golden("partitions-none", &["partitions", "list"]).await;
    site.says(&["partitions", "check"], 2, "the database has no partitions; `fsm partitions init N` creates them").await;
    let created = site.json(&["partitions", "init", "3"]).await;
    assert_eq!((&created["created"], &created["partitions"][2]["schema"]), (&json!(true), &json!("fsm_0002")));
    site.golden("partitions-init", &["partitions", "init", "3"]).await;
    site.golden("partitions-list", &["partitions", "list"]).await;
    site.golden("partitions-check", &["partitions", "check"]).await;

    let new = Site::new().await.fsm(To::Pipe, &["partitions", "init", "2"]).await;
    assert_eq!((new.code, new.talk.as_str()), (0, "2 partitions are ready; their number does not change later\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_databases_take_turns_and_their_passwords_are_not_shown() {
    let (site, second) = (Site::new().await, Site::new().await);
    let url = |site: &Site| format!("{}{}password=s3cret", site.0.url(), if site.0.url().contains('?') { '&' } else { '?' });
    let (first, other) = (url(&site), url(&second));
    site.says(&["partitions", "init", "3", "--url", &first, "--url", &other], 0, "3 partitions are ready").await;
    let listed = site.json(&["partitions", "list"]).await;
    let shown: Vec<_> = (0..3).map(|n| listed["partitions"][n]["url"].as_str().unwrap().to_owned()).collect();
    assert_eq!(shown, [&first, &other, &first].map(|url| url.replace("s3cret", "***")));
    assert!(!site.fsm(WIDE, &["partitions", "list"]).await.out.contains("s3cret"));
    site.says(&["partitions", "check"], 0, "").await;
    site.says(&["partitions", "init", "3"], 7, "has a directory that lists its 3 partitions at other places").await;
    // Each database is reached by its own URL.
    second.sql("drop schema fsm_0001 cascade").await;
    let checked = site.json(&["partitions", "check"]).await;
    assert_eq!((&checked["broken"], &checked["partitions"][0]["problems"]), (&json!(1), &json!([])));
    assert!(checked["partitions"][1]["problems"][0].as_str().unwrap().contains("does not exist"), "{checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_have_partitions_is_refused_with_the_reason() {
    let (site, file) = (Site::new().await, File::new());
    for number in ["0", "1025", "-1", "many"] {
        assert_eq!(site.fsm(To::Pipe, &["partitions", "init", number]).await.code, 2, "{number}");
    }
    let sqlite = fsm_at(Some(NOW), To::Pipe, &["-d", file.path(), "partitions", "init", "2"]).await;
    assert!(
        sqlite.code == 2 && sqlite.talk.contains("partitions are schemas of PostgreSQL, and the database is not `postgres://…`"),
        "{sqlite:?}"
    );
    let listed = fsm_at(Some(NOW), To::Pipe, &["-d", file.path(), "partitions", "list"]).await;
    assert!(listed.code == 0 && listed.talk.contains("the database has no partitions"), "{listed:?}");
    assert!(!std::path::Path::new(file.path()).exists(), "nothing was created");
    site.says(&["partitions", "init", "2", "--url", site.0.url(), "--url", "shop.db"], 2, "`--url` number 2 is not `postgres://…`").await;
    site.says(&["partitions", "list", "--partition", "0"], 2, "is about all partitions; leave out `--partition`").await;

    let bed = orders().postgres().await;
    bed.machine::<Order>().send("o-1", Placed { cents: 1, fails: 0 }).await.unwrap();
    let used = fsm_at(Some(NOW), To::Pipe, &["-d", bed.url(), "partitions", "init", "2"]).await;
    assert!(used.code == 7 && used.talk.contains("has the tables of a database without partitions"), "{used:?}");
    for words in [["ls", "--partition", "0"], ["doctor", "--partition", "0"]] {
        let all: Vec<&str> = ["-d", bed.url()].into_iter().chain(words).collect();
        let said = fsm_at(Some(NOW), To::Pipe, &all).await;
        assert!(said.code == 2 && said.talk.contains("has no partitions; leave out `--partition`"), "{said:?}");
    }

    site.says(&["partitions", "init", "2"], 0, "2 partitions are ready").await;
    site.says(&["partitions", "init", "4"], 7, "has 2 partitions already, and their number does not change").await;
    let inner = format!("{}{}options[search_path]=fsm_0001", site.0.url(), if site.0.url().contains('?') { '&' } else { '?' });
    let said = fsm_at(Some(NOW), To::Pipe, &["-d", &inner, "partitions", "list"]).await;
    assert!(
        said.code == 7 && said.talk.contains("is one partition of several; connect to the database that has the directory"),
        "{said:?}"
    );
    site.sql("delete from fsm_partitions where partition = 0").await;
    site.says(&["ls"], 7, "has a directory of 1 partitions in which number 0 is not the next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_about_one_instance_finds_its_partition() {
    let site = Site::with_orders(4).await;
    let keys: Vec<String> = (0..8).map(|n| format!("o-{n}")).collect();
    for key in &keys {
        site.send(key).await;
    }
    let mut found = Vec::new();
    for partition in 0..4 {
        let here = site.keys(partition).await;
        assert!(here.len() < keys.len(), "they are spread over the partitions");
        found.extend(here);
    }
    found.sort();
    assert_eq!(found, keys);
    for key in &keys {
        let shown = site.json(&["show", "order", key]).await;
        assert_eq!(shown["key"], json!(key));
        site.says(&["pause", "order", key, "--dry-run"], 0, "").await;
        site.says(&["pause", "order", key], 0, "").await;
        assert_eq!(site.json(&["show", "order", key]).await["paused"], json!(true));
        site.says(&["cancel", "order", key], 0, "").await;
        site.says(&["wait", "order", key, "--for", "end"], 0, "").await;
    }
    site.says(&["show", "order", "o-99"], 3, "there is no `order` `o-99`").await;
    let checked = site.json(&["partitions", "check"]).await;
    let instances: u64 = (0..4).map(|n| checked["partitions"][n]["instances"].as_u64().unwrap()).sum();
    assert_eq!((instances, &checked["broken"]), (8, &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_about_many_instances_is_about_all_partitions_or_the_selected_one() {
    let site = Site::with_orders(4).await;
    let many: [&[&str]; 10] = [
        &["machines"],
        &["ls"],
        &["errors"],
        &["due"],
        &["schedules"],
        &["workers"],
        &["limits"],
        &["stats"],
        &["graph", "order"],
        &["retry", "order", "--status", "error", "--dry-run"],
    ];
    for words in many {
        let one: Vec<&str> = words.iter().copied().chain(["--partition", "3"]).collect();
        site.says(words, 0, "").await;
        site.says(&one, 0, "").await;
    }
    site.says(&["ls", "--partition", "4"], 2, "has 4 partitions, from 0 to 3, and no partition 4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_in_the_wrong_partition_is_found_and_can_be_looked_at() {
    let site = Site::with_orders(2).await;
    site.send("o-1").await;
    let (home, other) = if partition_of("o-1", 2) == 0 { ("0", "1") } else { ("1", "0") };
    assert_eq!(site.keys(home.parse().unwrap()).await, ["o-1"]);
    let refused = format!("`o-1` belongs to partition {home}, not {other}; leave out `--partition`");
    site.says(&["send", "order", "o-1", "Paid", "{}", "--partition", other], 2, &refused).await;

    let (from, to) = (format!("fsm_000{home}.fsm_instances"), format!("fsm_000{other}.fsm_instances"));
    site.sql(&format!("insert into {to} select * from {from}; delete from {from}")).await;
    let said = site.fsm(To::Pipe, &["partitions", "check"]).await;
    assert!(said.code == 1 && said.talk.contains("1 of 2 partitions have a problem"), "{said:?}");
    assert!(said.out.contains(&format!("1 instances of `order` belong to other partitions: `o-1` to {home}")), "{said:?}");
    site.says(&["show", "order", "o-1"], 3, "there is no `order` `o-1`").await;
    site.says(&["show", "order", "o-1", "--partition", other], 0, "").await;
    site.says(&["cancel", "order", "o-1", "--partition", other], 0, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_and_doctor_go_through_all_partitions() {
    let site = Site::with_orders(3).await;
    for key in ["o-1", "o-2", "o-3", "o-4"] {
        site.send(key).await;
    }
    site.golden("partitions-migrate-status", &["migrate", "status"]).await;
    site.says(&["migrate", "check"], 0, "the tables are up to date").await;
    let one = site.json(&["migrate", "status", "--partition", "1"]).await;
    assert_eq!((one["migrations"].as_array().unwrap().len(), &one["migrations"][0]["partition"]), (2, &Value::Null));

    let healthy = site.fsm(WIDE, &["doctor", "--deep"]).await;
    assert_eq!(healthy.code, 0, "{healthy:?}");
    let headings: Vec<_> = healthy.out.lines().filter(|line| line.starts_with("partition ")).collect();
    assert_eq!(headings, ["partition 0", "partition 1", "partition 2"]);

    // One partition has no tables, and the others have a violation each.
    site.sql("drop schema fsm_0002 cascade").await;
    for schema in ["fsm_0000", "fsm_0001"] {
        site.sql(&format!("update {schema}.fsm_instances set version = 9")).await;
    }
    let said = site.fsm(To::Pipe, &["doctor", "--deep"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    for partition in ["0", "1"] {
        assert!(said.out.lines().any(|line| line.starts_with(&format!("{partition}\terror\tI6\t"))), "{said:?}");
    }
    assert!(said.out.contains("2\terror\tpartition\tthe schema `fsm_0002` of ") && said.out.contains("does not exist"), "{said:?}");
    let told = site.json(&["doctor", "--deep"]).await;
    let of = |n: u64| told["findings"].as_array().unwrap().iter().filter(move |finding| finding["partition"] == json!(n)).count();
    assert!(of(0) > 3 && of(1) > 3 && of(2) == 1 && told["broken"].as_u64().unwrap() >= 3, "{told:#}");
    site.says(&["doctor", "--deep", "--partition", "2"], 7, "does not exist").await;
    site.says(&["migrate", "up"], 7, "partition 2: the schema `fsm_0002`").await;
    site.says(&["migrate", "check"], 7, "partition 2: the schema `fsm_0002`").await;
    let checked = site.json(&["partitions", "check"]).await;
    let ok: Vec<_> = (0..3).map(|n| checked["partitions"][n]["problems"].as_array().unwrap().is_empty()).collect();
    assert_eq!(ok, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_are_applied_to_each_partition() {
    let site = Site::new().await;
    site.says(&["partitions", "init", "3"], 0, "").await;
    // Two partitions lose their tables, and still say which partition they are.
    for number in [0, 2] {
        let schema = format!("fsm_{number:04}");
        site.sql(&format!(
            "drop schema {schema} cascade; create schema {schema};
             create table {schema}.fsm_partition (partition bigint not null, partitions bigint not null, place_number bigint not null);
             insert into {schema}.fsm_partition values ({number}, 3, 1)"
        ))
        .await;
    }
    let wrong = site.fsm(To::Pipe, &["migrate", "check"]).await;
    assert!(
        wrong.code == 7 && wrong.talk.contains("partition 0: ") && wrong.talk.contains("2 of 3 partitions cannot be used"),
        "{wrong:?}"
    );
    let checked = site.json(&["partitions", "check"]).await;
    assert_eq!(checked["broken"], json!(2));
    let missing = async || site.fsm(To::Pipe, &["migrate", "status"]).await.out.matches("\tmissing\n").count();
    assert_eq!(missing().await, 4);
    site.says(&["migrate", "up", "--partition", "2"], 0, "").await;
    assert_eq!(missing().await, 2);
    site.says(&["migrate", "up"], 0, "").await;
    assert_eq!(missing().await, 0);
    site.says(&["migrate", "check"], 0, "the tables are up to date").await;
    site.says(&["partitions", "check"], 0, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_imported_only_into_its_own_partition() {
    let site = Site::with_orders(2).await;
    for key in ["o-1", "o-2", "o-3", "o-4"] {
        site.send(key).await;
    }
    let export = File::new();
    site.says(&["export", "--partition", "0", "-o", export.path()], 0, "").await;
    let new = Site::new().await;
    new.says(&["partitions", "init", "2"], 0, "").await;
    new.says(&["import", export.path(), "--partition", "1"], 1, "belongs to partition 0, not 1; nothing was imported").await;
    new.says(&["import", export.path(), "--partition", "0"], 0, "rows of `order` were imported").await;
    assert_eq!(new.keys(0).await, site.keys(0).await);
    assert!(!new.keys(0).await.is_empty());
    new.says(&["partitions", "check"], 0, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_moved_to_another_database_and_a_move_can_be_cancelled() {
    let (site, second) = (Site::with_orders(2).await, Site::new().await);
    let keys = ["a", "b", "c", "d"];
    for key in keys {
        site.send(key).await;
    }
    let before = site.keys(1).await;
    let to = second.0.url();
    site.says(&["partitions", "move", "1", "--to", "sqlite://a.db"], 2, "the new place is not `postgres://").await;
    site.says(&["partitions", "move", "2", "--to", to], 7, "has no partition 2").await;
    site.says(&["partitions", "move", "1", "--cancel"], 7, "is not being moved").await;

    // Tables of the user are not copied, and the move does not begin without them.
    site.sql("create table fsm_0001.orders (number text)").await;
    site.says(&["partitions", "move", "1", "--to", to], 7, "has tables that are not moved: orders").await;
    let listed = site.fsm(WIDE, &["partitions", "list"]).await;
    assert!(listed.out.contains("MOVING TO"), "{listed:?}");
    site.says(&["partitions", "check"], 1, "1 of 2 partitions have a problem").await;
    site.says(&["partitions", "move", "1", "--to", site.0.url()], 7, "is being moved to another database").await;
    site.says(&["partitions", "move", "1", "--cancel"], 0, "the move of partition 1 is cancelled").await;
    site.sql("drop table fsm_0001.orders").await;

    // The clock of the second database is wrong. The move does not begin, unless somebody accepts that.
    second.sql("create schema wrong").await;
    for (by, says) in [("1 hour", "ahead of that of the old one"), ("-1 minute", "behind that of the old one, and 7s500ms is allowed")] {
        let clock = format!("select pg_catalog.clock_timestamp() + interval '{by}'");
        second.sql(&format!("create or replace function wrong.clock_timestamp() returns timestamptz language sql as $$ {clock} $$")).await;
        second.sql("do $$ begin execute format('alter database %I set search_path = wrong, pg_catalog', current_database()); end $$").await;
        site.says(&["partitions", "move", "1", "--to", to], 7, says).await;
        site.says(&["partitions", "list"], 0, "").await;
        assert_eq!(site.json(&["partitions", "list"]).await["partitions"][1]["moving_to"], Value::Null, "nothing was begun");
    }

    let said = site.fsm(To::Pipe, &["partitions", "move", "1", "--to", to, "--ignore-clocks"]).await;
    let lines: Vec<_> = said.talk.lines().collect();
    assert_eq!(
        lines[..2],
        ["the tables are ready at the new place", "the partition is frozen: programs wait for its new place"],
        "{said:?}"
    );
    assert!(lines[2].ends_with(" rows were copied") && lines[3] == "the directory lists the new place", "{said:?}");
    assert!(lines[4].contains("its old rows are in the database of the directory, as `fsm_0001_moved_1`"), "{said:?}");
    site.says(&["partitions", "move", "1", "--to", to], 0, "partition 1 is there already; nothing was changed").await;
    assert_eq!(site.keys(1).await, before);
    let listed = site.json(&["partitions", "list"]).await;
    assert_eq!((&listed["partitions"][1]["place_number"], &listed["partitions"][1]["moving_to"]), (&json!(2), &Value::Null));
    site.says(&["partitions", "check"], 0, "").await;
    for key in keys {
        site.says(&["show", "order", key], 0, "").await;
    }
    site.says(&["partitions", "move", "1", "--to", site.0.url()], 7, "ahead of that of the old one").await;
    second.sql("do $$ begin execute format('alter database %I reset search_path', current_database()); end $$").await;
    let back = site.json(&["partitions", "move", "1", "--to", site.0.url()]).await;
    assert_eq!((&back["moved"], &back["old_schema"]), (&json!(true), &json!("fsm_0001_moved_2")));
    assert_eq!(site.keys(1).await, before);
    site.says(&["partitions", "check"], 0, "").await;
    site.says(&["partitions", "move", "1", "--cancel"], 7, "is not being moved").await;
}

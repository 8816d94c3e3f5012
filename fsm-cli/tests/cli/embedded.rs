//! The command inside a program: it knows the event types, the redaction and the machines of the program.

use fsm::{Client, EngineAccess, RedactableKind, partition_of};
use fsm_cli::stage::Stage;
use serde_json::json;
use sqlx::{Connection, PgConnection};

use crate::shop::{Order, orders, three};
use crate::support::{File, Said, To, fsm, healthy, json, on_both};

/// Runs the command on the program's database with its output in a pipe.
async fn inside(program: impl Into<EngineAccess>, words: &[&str]) -> Said {
    let (mut out, mut talk) = (Vec::new(), Vec::new());
    let mut stage = Stage {
        out: Box::new(&mut out),
        talk: Box::new(&mut talk),
        input: Box::new(std::io::empty()),
        width: None,
        answers: false,
        shows_progress: false,
        now: None,
        actor: Some("ann".into()),
    };
    let code = fsm_cli::run_inside(program, std::iter::once("shop").chain(words.iter().copied()).map(Into::into), &mut stage).await;
    drop(stage);
    let text = |bytes: Vec<u8>| anstream::adapter::strip_str(&String::from_utf8(bytes).expect("it is text")).to_string();
    Said { code, out: text(out), talk: text(talk) }
}

on_both! {
    async fn a_payload_of_another_shape_is_not_sent(bed) {
        let client = Client::connect(bed.url()).await.unwrap();
        let cases: [(&[&str], u8, &str); 4] = [
            (&["Placed", r#"{"cents": "many", "fails": 0}"#], 2, "the payload does not decode as `Placed`: invalid type: string \"many\", expected u64"),
            (&["Placed"], 2, "the payload does not decode as `Placed`: invalid type: null"),
            (&["Plaecd", "{}"], 3, "`order` takes no event `Plaecd`; it takes `Placed`, `Paid`, `Shipped`"),
            (&["Placed", r#"{"cents": 5, "fails": 0}"#], 0, ""),
        ];
        for (words, code, talk) in cases {
            let all: Vec<&str> = ["send", "order", "o-1"].iter().chain(words).copied().collect();
            let said = inside(&client, &all).await;
            assert_eq!(said.code, code, "{said:?}");
            assert!(said.talk.contains(talk), "{said:?}");
            assert_eq!(bed.machine::<Order>().get("o-1").await.unwrap().is_some(), code == 0);
        }
        bed.run_until_idle().await;
        assert_eq!(inside(&client, &["wait", "order", "o-1", "--for", "placed"]).await.code, 0);
        healthy(bed).await;
    }
}

on_both! {
    async fn secrets_are_taken_out_as_the_program_says(bed) {
        three(bed).await;
        let client = Client::builder().redact(|shown| (shown.kind == RedactableKind::Record).then(|| "\"secret\"".into()));
        let client = client.connect(bed.url()).await.unwrap();
        let said = inside(&client, &["show", "order", "o-3"]).await;
        assert!(said.out.contains("record    \"secret\"") && !said.out.contains(":300"), "{said:?}");
        for other in [["--database", "other.db"], ["--redact", "cents"]] {
            let said = inside(&client, &["ls", other[0], other[1]]).await;
            assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
            assert!(said.talk.contains("the program has its database"), "{said:?}");
        }
        let help = inside(&client, &["ls", "--help"]).await.out;
        assert!(!help.contains("--database") && !help.contains("--redact"), "{help}");
    }
}

on_both! {
    async fn a_database_without_partitions_says_so(bed) {
        let client = Client::connect(bed.url()).await.unwrap();
        let cases: [(&[&str], u8, &str); 4] = [
            (&["ls", "--partition", "0"], 2, "has no partitions; leave out `--partition`"),
            (&["partitions", "list"], 0, "the database has no partitions"),
            (&["partitions", "check"], 2, "the database has no partitions"),
            (&["partitions", "init", "2"], 2, "a running program has its tables already; create partitions before its first start"),
        ];
        for (words, code, talk) in cases {
            let said = inside(&client, words).await;
            assert!(said.code == code && said.talk.contains(talk), "{words:?}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_of_the_program_are_found_listed_and_checked() {
    let bed = orders().partitions(4).await;
    let program = &bed;
    let mut keys: Vec<String> = (0..8).map(|n| format!("o-{n}")).collect();
    for key in &keys {
        // The key decides which partition gets the event.
        let said = inside(program, &["send", "order", key, "Placed", r#"{"cents": 5, "fails": 0}"#]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    bed.run_until_idle().await;
    let json = async |words: &[&str]| {
        let said = inside(program, &words.iter().copied().chain(["--json"]).collect::<Vec<_>>()).await;
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap_or_else(|error| panic!("{error} in {said:?}"))
    };
    let mut listed = Vec::new();
    for partition in 0..4 {
        let page = json(&["ls", "order", "--partition", &partition.to_string()]).await;
        let here = page["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap().to_owned());
        let here: Vec<_> = here.inspect(|key| assert_eq!(partition_of(key, 4), partition)).collect();
        listed.extend(here);
    }
    listed.sort();
    keys.sort();
    assert_eq!(listed, keys);
    for words in [["show", "order", "o-3"], ["wait", "order", "o-3"], ["pause", "order", "o-3"], ["resume", "order", "o-3"]] {
        let words: Vec<_> = if words[0] == "wait" { words.into_iter().chain(["--for", "placed"]).collect() } else { words.to_vec() };
        let said = inside(program, &words).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let wrong = (partition_of("o-3", 4) + 1) % 4;
    let refused = inside(program, &["send", "order", "o-3", "Paid", "{}", "--partition", &wrong.to_string()]).await;
    assert!(refused.code == 2 && refused.talk.contains("leave out `--partition`"), "{refused:?}");
    let all = json(&["ls", "order", "--key", "o-*", "--oldest"]).await;
    assert_eq!(all["instances"].as_array().unwrap().iter().map(|one| one["key"].clone()).collect::<Vec<_>>(), keys);
    let paused = inside(program, &["pause", "order", "--status", "running", "--yes"]).await;
    assert_eq!((paused.code, paused.out.lines().count()), (0, 8), "{paused:?}");
    let resumed = inside(program, &["resume", "order", "--paused", "--yes"]).await;
    assert_eq!((resumed.code, resumed.out.lines().count()), (0, 8), "{resumed:?}");
    let none = inside(program, &["ls", "--partition", "4"]).await;
    assert!(none.code == 2 && none.talk.contains("from 0 to 3, and no partition 4"), "{none:?}");

    let schemas: Vec<_> = (0..4).map(|number| json!(format!("fsm_{number:04}"))).collect();
    let told = json(&["partitions", "list"]).await;
    assert_eq!(told["partitions"].as_array().unwrap().iter().map(|one| one["schema"].clone()).collect::<Vec<_>>(), schemas);
    let shown = inside(program, &["partitions", "list"]).await.out;
    assert_eq!(shown.lines().filter(|line| line.contains("\tthe PostgreSQL ")).count(), 4, "{shown}");
    let checked = json(&["partitions", "check"]).await;
    let instances: u64 = (0..4).map(|n| checked["partitions"][n]["instances"].as_u64().unwrap()).sum();
    assert_eq!((&checked["broken"], instances), (&json!(0), 8));
    let init = inside(program, &["partitions", "init", "4"]).await;
    assert!(init.code == 2 && init.talk.contains("create partitions before its first start"), "{init:?}");
    let about_one = inside(program, &["partitions", "check", "--partition", "0"]).await;
    assert!(about_one.code == 2 && about_one.talk.contains("is about all partitions"), "{about_one:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_go_through_all_partitions_of_the_program_and_a_broken_one_hides_no_other() {
    let bed = orders().partitions(4).await;
    let (check, status) = (&["migrate", "check"] as &[&str], &["migrate", "status"] as &[&str]);
    for words in [check, status, &["migrate", "up"], &["doctor", "--deep"], &["doctor", "--partition", "2"], &["partitions", "check"]] {
        let said = inside(&bed, words).await;
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
    }
    let versions = inside(&bed, status).await.out;
    let of = |number: u32| versions.lines().filter(|line| line.starts_with(&format!("{number}\t"))).count();
    assert!(of(0) > 0 && (1..4).all(|number| of(number) == of(0)), "{versions}");

    // The tables of one partition disappear under the running program.
    let mut conn = PgConnection::connect(bed.url()).await.unwrap();
    sqlx::raw_sql("alter schema fsm_0002 rename to away").execute(&mut conn).await.unwrap();
    let doctor = inside(&bed, &["doctor"]).await;
    assert_eq!(doctor.code, 1, "{doctor:?}");
    for number in 0..4 {
        let is_broken = doctor.out.lines().any(|line| line.starts_with(&format!("{number}\terror\tpartition\t")));
        assert_eq!(is_broken, number == 2, "{doctor:?}");
        assert!(doctor.out.lines().any(|line| line.starts_with(&format!("{number}\t"))), "{doctor:?}");
    }
    let checked = inside(&bed, &["partitions", "check"]).await;
    assert!(checked.code == 1 && checked.talk.contains("1 of 4 partitions have a problem"), "{checked:?}");
    let migrated = inside(&bed, check).await;
    assert!(migrated.code == 7 && migrated.talk.contains("partition 2: "), "{migrated:?}");
    bed.skip_invariant_check();
}

on_both! {
    async fn named_fields_are_hidden_without_the_program_too(bed) {
        three(bed).await;
        let said = fsm(bed, To::Pipe, &["show", "order", "o-3", "--redact", "cents,pin"]).await;
        assert!(said.out.contains(r#"record    {"cents":"***"}"#) && !said.out.contains(":300"), "{said:?}");
        assert_eq!(json(bed, &["ls", "--redact", "CENTS"]).await["instances"][0]["record"], json!({ "cents": "***" }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_machines_are_there_before_they_ever_started() {
    let file = File::new();
    let client = Client::connect(file.url()).await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&inside(&client, &["machines", "--json"]).await.out).unwrap();
    let order = told["machines"].as_array().unwrap().iter().find(|shown| shown["machine"] == "order").unwrap();
    assert_eq!(order["definitions"], json!(0));
    assert_eq!(inside(&client, &["migrate", "check"]).await.code, 0);
    assert_eq!(inside(&client, &["graph", "order"]).await.code, 0);
    let sent = inside(&client, &["send", "order", "o-1", "Placed", r#"{"cents": 5, "fails": 0}"#]).await;
    assert_eq!(sent.code, 0, "{sent:?}");
    assert!(inside(&client, &["due"]).await.out.contains("attempt 1 of 11 of `placed`"));
}

//! Maintenance commands: `doctor`, `stats`, `migrate`, completions and the manual page.

use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::shop::{Order, Paid, Placed, Shipped, orders, three};
use crate::support::{File, To, WIDE, fsm, fsm_at, golden, json, on_both};

async fn sql(url: &str, text: &str) {
    let text = AssertSqlSafe(text.to_owned());
    if url.starts_with("postgres") {
        let mut conn = PgConnection::connect(url).await.unwrap();
        sqlx::raw_sql(text).execute(&mut conn).await.unwrap();
    } else {
        let mut conn = SqliteConnection::connect(&format!("{url}{}", if url.contains('?') { "" } else { "?mode=rwc" })).await.unwrap();
        sqlx::raw_sql(text).execute(&mut conn).await.unwrap();
    }
}

/// The doctor's findings about one subject.
async fn says(bed: &fsm::testing::TestBed, about: &str) -> Vec<(String, String)> {
    let told = json(bed, &["doctor", "--deep"]).await;
    let findings = told["findings"].as_array().unwrap().iter().filter(|finding| finding["about"] == json!(about));
    findings.map(|finding| (finding["level"].as_str().unwrap().to_owned(), finding["says"].as_str().unwrap().to_owned())).collect()
}

on_both! {
    async fn a_healthy_database_is_told_so(bed) {
        three(bed).await;
        let shallow = fsm(bed, WIDE, &["doctor"]).await;
        assert_eq!(shallow.code, 0, "{shallow:?}");
        assert!(!shallow.out.contains("invariants") && shallow.talk.contains("are looked at with --deep"), "{shallow:?}");
        let said = fsm(bed, WIDE, &["doctor", "--deep"]).await;
        assert_eq!(said.code, 0, "{said:?}");
        for (about, expected) in [
            ("invariants", "every one holds"),
            ("workers", "1 live, and nothing is late"),
            ("drift", "every instance has its place in the newest definition of its machine"),
        ] {
            assert_eq!(says(bed, about).await, [("ok".to_owned(), expected.to_owned())]);
        }
        let setting = if bed.url().starts_with("postgres") { "synchronous_commit" } else { "journal_mode" };
        assert_eq!(says(bed, setting).await.len(), 1);
    }
}

on_both! {
    async fn a_broken_promise_is_found_and_named(bed) {
        three(bed).await;
        sql(bed.url(), "update fsm_instances set version = 9 where key = 'o-3'").await;
        let said = fsm(bed, To::Pipe, &["doctor", "--deep"]).await;
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.out.contains("error\tI6\t") && said.out.contains("has version 9 and state shipped after 3 transitions"), "{said:?}");
        // The test bed checks the invariants when it is dropped, so the row is repaired.
        sql(bed.url(), "update fsm_instances set version = 3 where key = 'o-3'").await;
    }
}

on_both! {
    async fn rejected_events_are_counted_and_listed(bed) {
        three(bed).await;
        assert!(says(bed, "rejected").await.is_empty());
        assert_eq!(fsm(bed, To::Pipe, &["errors", "--rejected"]).await.talk, "no event was rejected\n");
        let orders = bed.machine::<Order>();
        for key in ["o-4", "o-5"] {
            orders.send(key, Placed { cents: 1, fails: 9 }).await.unwrap();
            bed.run_until_idle().await;
            for event in ["r-1", "r-2"] {
                orders.send(key, Paid { receipt: event.into() }).after(Duration::from_secs(60)).await.unwrap();
            }
            orders.skip(key).await.unwrap();
        }
        bed.advance(Duration::from_secs(60)).await;
        let says = says(bed, "rejected").await;
        assert_eq!(says.len(), 1);
        assert_eq!(says[0].0, "warning");
        assert!(says[0].1.starts_with("events that instances of `order` did not take: 4, the last at 2030-01-01T00:01:02Z"), "{says:?}");
        let told = json(bed, &["errors", "--rejected"]).await;
        assert_eq!((told["rejected"].as_array().unwrap().len(), &told["rejected"][0]["count"]), (1, &json!(4)), "{told:#}");
        let said = fsm(bed, To::Pipe, &["errors", "order", "--rejected"]).await;
        assert!(said.code == 0 && said.out.contains("4\torder\t`order` # has not begun and takes `Placed`, not `Paid`"), "{said:?}");
    }
}

/// `Paid` takes the only place in the inbox, so `Shipped` waits in the outbox.
mod a_full_inbox_is_shown_by_errors_doctor_and_show {
    use fsm::prelude::*;

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Pay;

    #[verb]
    async fn paying(ctx: &mut Ctx<'_>, _event: Pay) -> Result {
        ctx.send::<Order>("o-1", Paid { receipt: "r-1".into() })?;
        ctx.send::<Order>("o-1", Shipped)?;
        Ok(())
    }

    fsm! {
        machine Till = "till" {
            start paying;
            end paying;
        }
    }

    async fn shown(bed: &fsm::testing::TestBed) {
        let orders = bed.machine::<Order>();
        orders.send("o-1", Placed { cents: 1, fails: 9 }).await.unwrap();
        bed.machine::<Till>().send("t-1", Pay).await.unwrap();
        bed.advance(Duration::from_secs(1)).await;
        let said = fsm(bed, To::Pipe, &["errors"]).await;
        let full = "the inbox of `order` `o-1` is full with 1 events: 1 wait in the outbox since 2030-01-01T00:00:00Z";
        assert!(said.talk.contains(full), "{said:?}");
        let told = json(bed, &["errors"]).await;
        assert_eq!((&told["full_inboxes"][0]["key"], &told["full_inboxes"][0]["inbox_len"]), (&json!("o-1"), &json!(1)), "{told:#}");
        let said = fsm(bed, To::Pipe, &["show", "order", "o-1"]).await;
        assert!(said.out.contains("1 events wait for room in the inbox since 2030-01-01T00:00:00Z"), "{said:?}");
        let found = says(bed, "outbox").await;
        assert_eq!(found.len(), 1);
        assert!(found[0].1.starts_with("1 events of the outbox wait for room in the inboxes of 1 instances of `order`"), "{found:?}");
    }

    fn small() -> fsm::testing::TestBedBuilder {
        orders().only::<Till>().with(|builder| builder.inbox_limit(1))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite() {
        let file = File::new();
        shown(&small().on(&file.url()).await).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn postgres() {
        shown(&small().postgres().await).await;
    }
}

on_both! {
    async fn dead_workers_and_what_nobody_does_are_found(bed) {
        bed.machine::<Order>().send("o-1", Placed { cents: 1, fails: 1 }).await.unwrap();
        bed.run_until_idle().await;
        let later = bed.now() + Duration::from_secs(600);
        let said = fsm_at(Some(later), To::Pipe, &["--database", bed.url(), "doctor"]).await;
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.out.contains("the lease of session <id>, process ") && said.out.contains(" ended 9m30s ago, at "), "{said:?}");
        let late = "1 attempts of `order` are due, the first since 2030-01-01T00:00:05Z: no worker is alive";
        assert!(said.out.contains(late), "{said:?}");
    }
}

on_both! {
    async fn instances_that_a_newer_definition_has_no_place_for_are_found(bed) {
        three(bed).await;
        let newer = r#"{"name":"order","verbs":[{"name":"bought","event":"Bought"}],"edges":[{"from":null,"event":"Bought","to":"bought"}],"ends":[]}"#;
        let at = bed.now().as_micros();
        sql(bed.url(), &format!("insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at) values ('order', 'f', '{newer}', {at}, {at})")).await;
        let soon = fsm(bed, To::Pipe, &["doctor"]).await;
        assert!(soon.out.contains("lacks the state `placed`, in which 1 instances of \"order\" are"), "{soon:?}");
        let drift = says(bed, "drift").await;
        let expected = [
            "the newest definition lacks what rows need: \"order\": 1 instance in the state `placed`, since 2030-01-01T00:00:01Z",
            "the newest definition lacks what rows need: \"order\": 1 open call of the verb `placed`, since 2030-01-01T00:00:00Z",
            "the newest definition lacks what rows need: \"order\": 1 exhausted call of the verb `paid`, since 2030-01-01T00:00:01Z",
        ];
        assert_eq!(drift.iter().map(|(_, says)| says.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(json(bed, &["machines"]).await["machines"][0]["definitions"], json!(2));
    }
}

on_both! {
    async fn after_a_rollback_the_older_definition_is_the_one_that_counts(bed) {
        let at = bed.now().as_micros();
        let newer = r#"{"name":"order","verbs":[{"name":"bought","event":"Bought"}],"edges":[{"from":null,"event":"Bought","to":"bought"}],"ends":[]}"#;
        for (seen, expected) in [(at + 1, "bought"), (at - 1, "placed")] {
            sql(bed.url(), "delete from fsm_machines where hash = 'f'").await;
            let insert = "insert into fsm_machines (machine, hash, definition, first_seen_at, last_seen_at)";
            sql(bed.url(), &format!("{insert} values ('order', 'f', '{newer}', {}, {seen})", at - 5)).await;
            let machine = &json(bed, &["machines"]).await["machines"][0];
            assert_eq!((machine["definitions"].clone(), machine["states"][0].as_str()), (json!(2), Some(expected)));
        }
    }
}

on_both! {
    async fn numbers_of_the_newest_calls(bed) {
        three(bed).await;
        golden(bed, "stats", &["stats"]).await;
        let cut = fsm(bed, To::Pipe, &["stats", "order", "--sample", "1", "--window", "1d"]).await;
        assert!(cut.talk.contains("as far as the sample reaches"), "{cut:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_are_made_only_when_asked_for() {
    let (file, bed) = (File::new(), orders().postgres().await);
    let name = format!("fsm_cli_{}", uuid::Uuid::new_v4().simple());
    sql(bed.url(), &format!("create database {name}")).await;
    for database in [file.path().to_owned(), sibling(bed.url(), &name)] {
        let run = async |arguments: &[&str]| {
            let all: Vec<&str> = ["--database", &database, "migrate"].iter().chain(arguments).copied().collect();
            fsm_at(Some(bed.now()), To::Pipe, &all).await
        };
        assert_eq!(run(&["check"]).await.code, 7);
        let up = run(&["up"]).await;
        let applied = "1\tfirst\t2030-01-01T00:00:00Z\tapplied\n2\tscreens\t2030-01-01T00:00:00Z\tapplied\n";
        assert_eq!((up.out.as_str(), up.code), (applied, 0), "{up:?}");
        assert_eq!(run(&["up"]).await, up);
        assert_eq!(run(&["status"]).await.out, up.out);
        assert_eq!(run(&["check"]).await.code, 0);
    }
    sql(bed.url(), &format!("drop database {name} with (force)")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_script_makes_the_same_tables() {
    let (file, bed) = (File::new(), orders().postgres().await);
    let name = format!("fsm_cli_{}", uuid::Uuid::new_v4().simple());
    sql(bed.url(), &format!("create database {name}")).await;
    for (database, kind) in [(format!("sqlite://{}", file.path()), "sqlite"), (sibling(bed.url(), &name), "postgres")] {
        let script = fsm_at(Some(bed.now()), To::Pipe, &["migrate", "print", "--for", kind]).await;
        sql(&database, &script.out).await;
        for command in [["migrate", "check"], ["migrate", "up"]] {
            let all: Vec<&str> = ["--database", &database].iter().chain(&command).copied().collect();
            let said = fsm_at(Some(bed.now()), To::Pipe, &all).await;
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    sql(bed.url(), &format!("drop database {name} with (force)")).await;
}

#[tokio::test]
async fn a_shell_and_man_are_told_of_every_command() {
    for arguments in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"], &["--help"]] {
        let said = fsm_at(None, To::Pipe, arguments).await;
        assert_eq!(said.code, 0, "{said:?}");
        for command in ["machines", "simulate", "doctor", "migrate", "completions"] {
            assert!(said.out.contains(command), "{arguments:?} does not name {command}");
        }
    }
}

/// The URL of another database on the same server.
fn sibling(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, String::new()), |(base, query)| (base, format!("?{query}")));
    let host = base.find("://").map_or(0, |at| at + 3);
    let end = base[host..].find('/').map_or(base.len(), |at| host + at);
    format!("{}/{name}{query}", &base[..end])
}

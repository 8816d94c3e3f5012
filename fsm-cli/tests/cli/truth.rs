//! Output in unusual situations: no live worker, an attempt whose worker died, and retries in progress.

use std::time::Duration;

use fsm::Timestamp;
use fsm::testing::TestBed;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::shop::{Order, Paid, Placed, three};
use crate::support::{Said, To, WIDE, fsm, fsm_at, json, on_both};

const AN_HOUR: Duration = Duration::from_secs(3600);

/// Changes rows directly in the database. `blob(…)` is a text as bytes.
async fn meddle(bed: &TestBed, sql: &str) {
    if bed.url().starts_with("postgres") {
        let sql = sql.replace("blob(", "convert_to(").replace("')", "', 'UTF8')");
        let mut conn = PgConnection::connect(bed.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    } else {
        let sql = sql.replace("blob(", "cast(").replace("')", "' as blob)");
        let mut conn = SqliteConnection::connect(bed.url()).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    }
}

/// Marks the scheduled attempt of `o-1` as executing in the session of the test bed's worker. Returns the end of that worker's lease.
async fn claimed(bed: &TestBed) -> Timestamp {
    let worker = "(select session_id from fsm_workers limit 1)";
    let sql = format!(
        "update fsm_instances set attempt_state = 'executing', due_at = null, worker = {worker}, started_at = scheduled_at
         where attempt_state = 'scheduled'"
    );
    meddle(bed, &sql).await;
    let ids = if bed.url().starts_with("postgres") { "uuid_send(instance_id)" } else { "instance_id" };
    let log = format!(
        "insert into fsm_session_log (session_id, number, instances)
         select {worker}, 1000000, {ids} from fsm_instances where attempt_state = 'executing'"
    );
    meddle(bed, &log).await;
    let workers = json(bed, &["workers"]).await;
    workers["workers"][0]["lease_until"].as_str().unwrap().parse::<Moment>().unwrap().0
}

/// A time in RFC 3339 as the command prints it.
struct Moment(Timestamp);

impl std::str::FromStr for Moment {
    type Err = String;
    fn from_str(text: &str) -> Result<Moment, String> {
        (0..)
            .map(|s| Timestamp::from_micros(1_893_456_000_000_000 + s * 1_000_000))
            .take(100_000)
            .find(|at| at.to_string() == text)
            .map(Moment)
            .ok_or(text.to_owned())
    }
}

async fn later(bed: &TestBed, to: To, arguments: &[&str]) -> Said {
    let mut all = vec!["--database", bed.url()];
    all.extend(arguments);
    fsm_at(Some(bed.now() + AN_HOUR), to, &all).await
}

on_both! {
    async fn a_send_says_whether_a_worker_is_alive(bed) {
        let event = r#"{"cents":1,"fails":0}"#;
        let sent = fsm(bed, To::Pipe, &["send", "order", "o-1", "Placed", event]).await;
        assert!(sent.out.contains("its call is due, and a worker runs it"), "{sent:?}");
        let sent = later(bed, To::Pipe, &["send", "order", "o-2", "Placed", event]).await;
        assert!(sent.out.contains("its call waits for a worker: none is alive"), "{sent:?}");
        let sent = later(bed, To::Pipe, &["send", "order", "o-2", "Paid", r#"{"receipt":"r"}"#]).await;
        assert!(sent.out.contains("it waits in the inbox; no worker is alive"), "{sent:?}");
        let sent = later(bed, To::Pipe, &["send", "order", "o-3", "Placed", event, "--after", "1h"]).await;
        assert!(sent.out.contains("it is delivered later, if a worker is alive then: none is now"), "{sent:?}");
        let shown = later(bed, To::Pipe, &["show", "order", "o-2"]).await;
        assert!(shown.out.contains("for attempt 1 of 11 of `placed`; no worker is alive"), "{shown:?}");
    }
}

on_both! {
    async fn an_attempt_whose_worker_died_is_not_said_to_run(bed) {
        three(bed).await;
        bed.advance(Duration::from_secs(1)).await;
        let lease_until = claimed(bed).await;
        let shown = fsm(bed, To::Pipe, &["show", "order", "o-1"]).await;
        assert!(shown.out.contains("runs attempt 2 of 11 of `placed`") && shown.out.contains("executes in session <id>"), "{shown:?}");

        let shown = later(bed, To::Pipe, &["show", "order", "o-1"]).await;
        let about = format!("attempt 2 of 11 of `placed` has no worker: the lease ended at {lease_until}; no worker is alive to take it over");
        assert!(shown.out.contains(&about), "{shown:?}");
        assert!(shown.out.contains(&format!("was executed by session <id>, whose lease ended at {lease_until}")), "{shown:?}");
        let shown = later(bed, WIDE, &["show", "order", "o-1", "--json"]).await;
        assert!(shown.out.contains(r#""has_lapsed": true"#), "{shown:?}");
        let listed = later(bed, To::Pipe, &["ls", "order", "--status", "running"]).await;
        assert!(listed.out.contains(&format!("`placed`, attempt 2 of 11, has no worker: its lease ended {lease_until}")), "{listed:?}");
        let waited = later(bed, To::Pipe, &["wait", "order", "o-1", "--timeout", "1ms"]).await;
        assert!(waited.talk.contains(&about), "{waited:?}");

        let due = later(bed, To::Pipe, &["due"]).await;
        assert!(due.out.contains(&format!("{lease_until}\torder\to-1\tattempt 2 of `placed` is taken over: its worker's lease has ended")), "{due:?}");
        assert!(due.talk.contains("no worker is alive: nothing of this happens until one starts"), "{due:?}");

        let doctor = later(bed, To::Pipe, &["doctor"]).await;
        let says = "and holds 1 attempts: no worker is alive that could take them over, and nothing happens until one starts";
        assert!(doctor.out.contains(says) && doctor.code == 0, "{doctor:?}");
        // The row of its session is deleted, so the worker is unknown.
        meddle(bed, "delete from fsm_workers").await;
        let shown = fsm(bed, To::Pipe, &["show", "order", "o-1"]).await;
        assert!(shown.out.contains("has no worker: its session is gone; no worker is alive to take it over"), "{shown:?}");
    }
}

on_both! {
    async fn errors_include_what_is_being_retried(bed) {
        three(bed).await;
        let errors = json(bed, &["errors"]).await;
        let of = |group: &serde_json::Value| {
            let text = |name: &str| group[name].as_str().unwrap_or("-").to_owned();
            (text("status"), text("fingerprint"), group["example"]["key"].as_str().unwrap().to_owned(), text("next_at"))
        };
        let groups: Vec<_> = errors["errors"].as_array().unwrap().iter().map(of).collect();
        let group = |status: &str, error: &str, key: &str, next: &str| (status.to_owned(), error.to_owned(), key.to_owned(), next.to_owned());
        let expected = [
            group("error", "no receipt", "o-2", "-"),
            group("retrying", "the gateway is down, # to go", "o-1", "2030-01-01T00:00:05Z"),
        ];
        assert_eq!(groups, expected);
        let cases: [(&[&str], &[&str]); 6] = [
            (&["--retrying"], &["o-1"]),
            (&["--retrying", "--error", "GATEWAY"], &["o-1"]),
            (&["--retrying", "--status", "error"], &[]),
            (&["--error", "gateway"], &["o-1"]),
            (&["--error", "o"], &["o-2", "o-1"]),
            (&["--error", "o", "--oldest", "--limit", "1"], &["o-1"]),
        ];
        for (filter, expected) in cases {
            let page = json(bed, &[&["ls", "order"], filter].concat()).await;
            let keys: Vec<_> = page["instances"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
            assert_eq!(keys, expected, "{filter:?}");
        }
        // The next attempt executes. The instance still counts as being retried.
        claimed(bed).await;
        assert_eq!(json(bed, &["errors"]).await["errors"][1]["status"], "retrying");
        assert_eq!(json(bed, &["ls", "--retrying"]).await["instances"][0]["key"], "o-1");
    }
}

on_both! {
    async fn cancelled_instances_are_counted_apart(bed) {
        three(bed).await;
        bed.machine::<Order>().cancel("o-2", "a mistake").await.unwrap();
        for all in [&[][..], &["--all"]] {
            let drawn = fsm(bed, To::Pipe, &[&["graph", "order", "--counts"], all].concat()).await;
            assert!(drawn.out.contains(r#"state "placed (0, 1 cancelled)" as placed"#), "{drawn:?}");
        }
        let counts = json(bed, &["graph", "order", "--counts"]).await;
        assert_eq!((counts["counts"][0]["instances"].as_u64(), counts["counts"][0]["cancelled"].as_u64()), (Some(0), Some(1)));
    }
}

on_both! {
    async fn a_state_that_no_machine_has_is_an_error(bed) {
        three(bed).await;
        let cases: [(&[&str], &str); 4] = [
            (&["ls", "order", "--state", "palced"], "`order` has not the state `palced`; the states are `placed`, `paid`, `expired` and `shipped`; did you mean `placed`?"),
            (&["ls", "--state", "nowhere"], "no machine has the state `nowhere`; the states are"),
            (&["retry", "order", "--state", "nowhere", "--dry-run"], "`order` has not the state `nowhere`"),
            (&["ls", "orders", "--state", "placed"], "has no machine `orders`"),
        ];
        for (arguments, talk) in cases {
            let said = fsm(bed, To::Pipe, arguments).await;
            assert!(said.code == 3 && said.talk.contains(talk), "{said:?}");
        }
    }
}

on_both! {
    async fn doctor_ends_with_code_1_for_a_warning_if_it_is_asked_to(bed) {
        three(bed).await;
        // A temporary PostgreSQL may run without fsync, which is a warning.
        let warnings = json(bed, &["doctor"]).await["warnings"].as_u64().unwrap();
        assert_eq!(fsm(bed, To::Pipe, &["doctor", "--strict"]).await.code, u8::from(warnings > 0));
        assert!(bed.url().starts_with("postgres") || warnings == 0);
        assert_eq!(later(bed, To::Pipe, &["doctor"]).await.code, 0);
        let said = later(bed, To::Pipe, &["doctor", "--strict"]).await;
        assert!(said.code == 1 && said.talk.contains("warnings, and --strict was given"), "{said:?}");
    }
}

on_both! {
    async fn a_record_that_the_code_cannot_read_is_named(bed) {
        three(bed).await;
        meddle(bed, "update fsm_instances set record = blob('true') where key = 'o-1'").await;
        bed.advance(Duration::from_secs(4)).await;
        let error = "the record does not decode as `Sum`";
        let doctor = fsm(bed, To::Pipe, &["doctor"]).await;
        let says = format!("warning\tvalues\t1 instances of `order` have a stored value that the code which ran them cannot read, like `o-1`: {error}");
        assert!(doctor.out.contains(&says), "{doctor:?}");
        let errors = fsm(bed, To::Pipe, &["errors"]).await;
        assert!(errors.out.contains(&format!("1\tretrying\torder\tplaced\t{error}")), "{errors:?}");
        bed.machine::<Order>().send("o-3", Paid { receipt: "late".into() }).await.unwrap_err();
        bed.machine::<Order>().send("o-4", Placed { cents: 1, fails: 0 }).await.unwrap();
    }
}

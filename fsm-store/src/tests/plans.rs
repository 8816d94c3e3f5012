//! In a database with a long history, the statements of the screens read only few rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::conn::Conn;
use crate::open::Store;
use crate::sql::{self, Among, Sql};
use crate::testing::EmptyDatabase;
use crate::testing::scale;

/// So many instances have about 150,000 attempts, so that a scan of all of them is noticed.
const INSTANCES: u64 = 30_000;
/// A result with at most so many rows may be read whole.
const SMALL: u64 = 100;
/// SQLite takes about a hundred virtual machine steps for an instance with its newest attempt.
const STEPS_A_ROW: u64 = 128;
/// The number of steps between two calls of the progress handler.
const STEPS_A_CALL: i32 = 100;

/// A statement of a screen, its parameters as SQL literals, and the maximum number of rows that it may read.
struct Asked {
    name: String,
    sql: &'static Sql,
    values: Vec<String>,
    most: u64,
}

fn asked(name: &str, sql: &'static Sql, values: &[&str], most: u64) -> Asked {
    Asked { name: name.to_owned(), sql, values: values.iter().map(|value| (*value).to_owned()).collect(), most }
}

/// The statements of the screens for a machine with many instances and for one with few.
fn all(is_postgres: bool) -> Vec<Asked> {
    let uuid = |id: Uuid| if is_postgres { format!("'{id}'::uuid") } else { format!("x'{}'", id.simple()) };
    let (first, last) = (&*uuid(Uuid::nil()), &*uuid(Uuid::max()));
    let now = format!("{}000", scale::ends_at_ms(INSTANCES));
    let one = |call: u64| {
        Uuid::from_u128(
            (((scale::BEGINS_AT_MS as u128) + 70 + u128::from(call)) << 80) | 0x7000_8000_0000_0000_0000 | u128::from(56 + call),
        )
    };
    let (instance, call) = (&*uuid(one(0)), &*uuid(one(2)));
    let mut all = vec![
        asked("FIND", &sql::FIND, &["'order'", "'order-7'"], 5),
        asked("CALLS", &sql::CALLS, &[call, "null"], 20),
        asked("NOTES", &sql::NOTES, &[instance], SMALL),
        asked("WAITING", &sql::WAITING, &[instance], SMALL),
        asked("TIMERS_BESIDE", &sql::TIMERS_BESIDE, &[instance], 5),
        asked("TIMERS_SET", &sql::TIMERS_SET, &[instance], 5),
        asked("PAYLOAD", &sql::PAYLOAD, &[call, instance], 2),
        asked("RETRYING", &sql::RETRYING, &["'order'", "50", "500"], 2600),
        asked("FAILING", &sql::FAILING, &["'order'", last, "100"], 220),
        // So few attempts are scheduled that PostgreSQL may sort all of them.
        asked("CALLS_TO_COME", &sql::CALLS_TO_COME, &["'order'", "50"], 400),
        asked("TIMERS_TO_COME", &sql::TIMERS_TO_COME, &["'order'", "50"], 110),
        asked("SESSIONS", &sql::SESSIONS, &[], 5),
        asked("COUNT_UP_TO", &sql::COUNT_UP_TO, &["'order'", "500"], 510),
        asked("COUNT_IN_ERROR", &sql::COUNT_IN_ERROR, &["'order'", "50"], 60),
        asked("OVERDUE", &sql::OVERDUE, &["'order'", &now, "500"], 510),
        asked("NEWEST", &sql::NEWEST, &["500"], 510),
        // The history entries that are read, and the instance of each operator act among them.
        asked("ACTS", &sql::ACTS, &["9223372036854775807", "100"], 20_000 + 300),
        asked("REJECTED", &sql::REJECTED, &["'order'", last, "20"], SMALL),
        asked("COUNT_REJECTED", &sql::COUNT_REJECTED, &["'order'", "100"], SMALL),
    ];
    let kinds: [(&str, &'static Among); 6] = [
        ("RUNNING", &sql::RUNNING),
        ("IN_ERROR", &sql::IN_ERROR),
        ("ENDED_SO_FAR", &sql::ENDED_SO_FAR),
        ("COMPLETED", &sql::COMPLETED),
        ("CANCELLED", &sql::CANCELLED),
        ("PAUSED", &sql::PAUSED),
    ];
    for machine in ["'order'", "'parcel'"] {
        let page = |beyond, until| [machine, beyond, "51", "null", "null", "null", "null", until, "null"];
        all.push(asked("EVERY_OLDEST_FIRST", &sql::EVERY_OLDEST_FIRST, &page(first, last), 160));
        all.push(asked("EVERY_NEWEST_FIRST", &sql::EVERY_NEWEST_FIRST, &page(last, first), 160));
        all.push(asked("NOT_ENDED_OLDEST_FIRST", &sql::NOT_ENDED_OLDEST_FIRST, &page(first, last), 110));
        all.push(asked("NOT_ENDED_NEWEST_FIRST", &sql::NOT_ENDED_NEWEST_FIRST, &page(last, first), 110));
        for (name, among) in kinds {
            // PostgreSQL may scan all instances if most are of the kind.
            let most = 160;
            all.push(asked(&format!("{name}, oldest first, {machine}"), &among.oldest_first, &page(first, last), most));
            all.push(asked(&format!("{name}, newest first, {machine}"), &among.newest_first, &page(last, first), most));
            all.push(asked(&format!("{name}, edge up, {machine}"), &among.edge_up, &[machine, first, "400"], 500));
            all.push(asked(&format!("{name}, edge down, {machine}"), &among.edge_down, &[machine, last, "400"], 500));
            all.push(asked(&format!("{name}, states, {machine}"), &among.states, &[machine, "400"], 500));
        }
    }
    let keys = ["'order'", "'order-12'", "51", "null", "null", "null", "null", "'order-13'", "null", "null"];
    all.push(asked("keys with a prefix, up", &sql::KEYS_UP, &keys, 60));
    all.push(asked("keys with a prefix, down", &sql::KEYS_DOWN, &keys, 60));
    all.push(asked("edge of keys, up", &sql::KEY_EDGE_UP, &["'order'", "'order-1'", "'order-2'", "400"], 500));
    all.push(asked("edge of keys, down", &sql::KEY_EDGE_DOWN, &["'order'", "'order-1'", "'order-2'", "400"], 500));
    let found = |name, value, names, values| {
        ["'order'", "'order-12'", "51", "null", "null", "null", "null", "'order-13'", "null", "null", name, value, names, values]
    };
    let (none, tenants, ones) = if is_postgres { ("'{}'", "'{tenant}'", "'{t-1}'") } else { ("'[]'", "'[\"tenant\"]'", "'[\"t-1\"]'") };
    // Each row is read in two tables, and some of the candidates in a third.
    for (name, sql) in [("up", &sql::FOUND_UP), ("down", &sql::FOUND_DOWN)] {
        all.push(asked(&format!("half of all by a field, {name}"), sql, &found("'tenant'", "'t-1'", none, none), 120));
        all.push(asked(&format!("few by a field, {name}"), sql, &found("'customer'", "'c-1234'", none, none), 30));
        all.push(asked(&format!("by two fields, {name}"), sql, &found("'customer'", "'c-1234'", tenants, ones), 50));
    }
    let edge = ["'order'", "'tenant'", "'t-1'", "''", "'z'", "400"];
    all.push(asked("edge by a field, up", &sql::FOUND_EDGE_UP, &edge, 500));
    all.push(asked("edge by a field, down", &sql::FOUND_EDGE_DOWN, &edge, 500));
    all.push(asked("SEARCH_COUNT", &sql::SEARCH_COUNT, &["'order'", "'tenant'", "'t-1'", "1000"], 1010));
    // Less than a third of the running instances are retried. Each is read with its attempt before.
    let retrying = ["'order'", first, "51", "null", "null", "null", "null", last, "1"];
    // With few rows PostgreSQL may join the attempts in one pass.
    all.push(asked("RUNNING, retrying", &sql::RUNNING.oldest_first, &retrying, 1500));
    // A state that few instances are in, searched up to the edge of the page.
    let edge = &*uuid(Uuid::from_u128(((scale::BEGINS_AT_MS as u128) + 10 * 300) << 80));
    let rare = ["'order'", first, "51", "'paid'", "null", "null", "null", edge, "null"];
    all.push(asked("a rare state", &sql::EVERY_OLDEST_FIRST, &rare, 330));
    all
}

fn filled(text: &str, values: &[String]) -> String {
    let places = (1..=values.len()).rev();
    places.fold(text.to_owned(), |text, place| text.replace(&format!("${place}"), &values[place - 1]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_screen_looks_at_no_more_rows_than_it_shows() {
    let mut slow = Vec::new();
    for fresh in [EmptyDatabase::file(), EmptyDatabase::postgres().await] {
        scale::fill(&fresh.url(), INSTANCES).await.unwrap();
        let store = fresh.open().await;
        for asked in all(store.is_postgres()) {
            let looked_at = if store.is_postgres() { rows_in_postgres(&store, &asked).await } else { rows_in_sqlite(&store, &asked).await };
            if looked_at > asked.most {
                slow.push(format!("{}: {looked_at} rows in {}, at most {}", asked.name, store.place(), asked.most));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_filled_keeps_every_promise() {
    for fresh in [EmptyDatabase::file(), EmptyDatabase::postgres().await] {
        scale::fill(&fresh.url(), 2000).await.unwrap();
        let store = fresh.open().await;
        let mut examined = crate::invariants::examine(&mut store.reader().await.unwrap().conn()).await.unwrap();
        examined.retain(|invariant| !invariant.holds());
        assert!(examined.is_empty(), "{examined:#?}");
    }
}

/// The number of rows that the statement read from our tables, including those that a filter removed.
async fn rows_in_postgres(store: &Store, asked: &Asked) -> u64 {
    let explain = Sql { sqlite: "", postgres: format!("explain (analyze) {}", filled(asked.sql.postgres, &asked.values)).leak() };
    let mut plan = Vec::new();
    for row in store.reader().await.unwrap().conn().rows(&explain, &[]).await.unwrap() {
        plan.push(row.get::<String>(0).unwrap());
    }
    // A line of a plan node, followed by the rows that its filter removed. Both are per loop.
    let (mut all, mut loops) = (0, 0);
    for line in &plan {
        let number = |label: &str| line.rsplit_once(label)?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
        if line.contains("(actual ") {
            loops = if line.contains(" on fsm_") && !line.contains("Bitmap Index Scan") { number("loops=").unwrap() } else { 0 };
            all += loops * number(" rows=").unwrap();
        } else if let Some(removed) = number("Rows Removed by Filter: ") {
            all += loops * removed;
        }
    }
    all
}

/// The number of SQLite's virtual machine steps, converted to rows.
async fn rows_in_sqlite(store: &Store, asked: &Asked) -> u64 {
    let query = Sql { sqlite: filled(asked.sql.sqlite, &asked.values).leak(), postgres: "" };
    let calls = Arc::new(AtomicU64::new(0));
    let mut reader = store.reader().await.unwrap();
    if let Conn::Sqlite(guarded) = reader.conn() {
        let calls = Arc::clone(&calls);
        let count = move || {
            calls.fetch_add(1, Ordering::Relaxed);
            false
        };
        guarded.into_inner().run(|connection| connection.progress_handler(STEPS_A_CALL, Some(count))).await.unwrap();
    }
    reader.conn().rows(&query, &[]).await.unwrap();
    if let Conn::Sqlite(guarded) = reader.conn() {
        guarded.into_inner().run(|connection| connection.progress_handler(0, None::<fn() -> bool>)).await.unwrap();
    }
    calls.load(Ordering::Relaxed) * STEPS_A_CALL as u64 / STEPS_A_ROW
}

//! In a database with a long life behind it, what a screen asks for is found without looking at all the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use super::samples::Fresh;
use crate::store::conn::Conn;
use crate::store::open::Store;
use crate::store::sql::{self, Among, Sql};
use crate::testing::scale;

/// So many instances have some 150,000 attempts: a look at all of them is seen.
const INSTANCES: u64 = 30_000;
/// What has so few rows in all may be read whole.
const SMALL: u64 = 100;
/// SQLite takes some tens of steps for a row.
const STEPS_A_ROW: u64 = 100;
/// It tells each time it made so many.
const STEPS_A_CALL: i32 = 100;

/// A statement of a screen, its values as they are written in SQL, and the most rows that it may look at for them.
struct Asked {
    name: String,
    sql: &'static Sql,
    values: Vec<String>,
    most: u64,
}

fn asked(name: &str, sql: &'static Sql, values: &[&str], most: u64) -> Asked {
    Asked { name: name.to_owned(), sql, values: values.iter().map(|value| (*value).to_owned()).collect(), most }
}

/// What the screens ask about a machine with many instances, and about one with a few.
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
        asked("CALLS", &sql::CALLS, &[call], 20),
        asked("NOTES", &sql::NOTES, &[instance], SMALL),
        asked("WAITING", &sql::WAITING, &[instance], SMALL),
        asked("TIMERS_BESIDE", &sql::TIMERS_BESIDE, &[instance], 5),
        asked("TIMERS_SET", &sql::TIMERS_SET, &[instance], 5),
        asked("PAYLOAD", &sql::PAYLOAD, &[call], 1),
        asked("RETRYING", &sql::RETRYING, &["'order'", "50", "500"], 2600),
        asked("LAPSED", &sql::LAPSED, &["'order'", &now, "50"], 400),
        asked("FAILING", &sql::FAILING, &["'order'", last, "100"], 220),
        // So few are scheduled that PostgreSQL may sort all of them.
        asked("CALLS_TO_COME", &sql::CALLS_TO_COME, &["'order'", "50"], 400),
        asked("TIMERS_TO_COME", &sql::TIMERS_TO_COME, &["'order'", "50"], 110),
        asked("SESSIONS", &sql::SESSIONS, &[], 5),
        asked("COUNT_UP_TO", &sql::COUNT_UP_TO, &["'order'", "500"], 510),
        asked("COUNT_IN_ERROR", &sql::COUNT_IN_ERROR, &["'order'", "50"], 60),
        asked("OVERDUE", &sql::OVERDUE, &["'order'", &now, "500"], 510),
        asked("NEWEST", &sql::NEWEST, &["500"], 510),
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
            // PostgreSQL may walk all instances where most are of the kind.
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
    // Less than a third of the running instances are retried, each found with its attempt before.
    let retrying = ["'order'", first, "51", "null", "null", "null", "null", last, "1"];
    // With few rows PostgreSQL may join the attempts in one pass.
    all.push(asked("RUNNING, retrying", &sql::RUNNING.oldest_first, &retrying, 1500));
    // A state that hardly any instance is in, looked for up to an edge.
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
    for fresh in [Fresh::file(), Fresh::postgres().await] {
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
    for fresh in [Fresh::file(), Fresh::postgres().await] {
        scale::fill(&fresh.url(), 2000).await.unwrap();
        let store = fresh.open().await;
        let mut examined = crate::store::invariants::examine(&mut store.reader().await.unwrap().conn()).await.unwrap();
        examined.retain(|invariant| !invariant.holds());
        assert!(examined.is_empty(), "{examined:#?}");
    }
}

/// Rows that the statement took from our tables, and those that it took and threw away.
async fn rows_in_postgres(store: &Store, asked: &Asked) -> u64 {
    let explain = Sql { sqlite: "", postgres: format!("explain (analyze) {}", filled(asked.sql.postgres, &asked.values)).leak() };
    let mut plan = Vec::new();
    for row in store.reader().await.unwrap().conn().rows(&explain, &[]).await.unwrap() {
        plan.push(row.get::<String>(0).unwrap());
    }
    // A node of the plan, and below it what it threw away: for each of its loops.
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

/// The steps of SQLite's machine, in rows.
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

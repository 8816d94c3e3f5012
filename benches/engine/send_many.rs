//! Many sends in one call, beside multi-row INSERTs of rows with the same columns and keys.

use std::error::Error;
use std::time::Instant;

use fsm::{Client, SendItem};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::database::{BenchDatabase, Database};
use crate::machine::{Begin, Pulse, text};
use crate::report::Report;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The number of events, each to a new instance.
const EVENTS: usize = 100_000;
/// The number of rows of an INSERT. Each is a commit.
const ROWS: usize = 1000;

/// The columns that a send writes for a new instance whose call is due.
const COLUMNS: &str =
    "instance_id, machine, key, status, paused, version, inbox_head, inbox_tail, created_at, updated_at, is_open, call_id,
    attempt, attempt_state, verb, event, payload, to_state, attempt_created_at, scheduled_at, due_at, remaining_attempts, backoff,
    max_backoff, retry, first_at, snoozes";
const RETRY: &str = r#"{"retries":25,"interval":{"secs":5,"nanos":0},"backoff":2.0,"max":{"secs":3600,"nanos":0}}"#;

/// Measures both on the tables of the engine.
pub async fn measure(bench_database: &BenchDatabase, report: &mut Report) -> Result {
    let client = Client::connect(&bench_database.url).await?;
    let items = (0..EVENTS).map(|n| SendItem::new(format!("many-{n}"), Begin { text: text() }));
    let begun = Instant::now();
    for sent in client.machine::<Pulse>().send_many(items).collect().await? {
        sent?;
    }
    let rate = EVENTS as f64 / begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    match bench_database.kind {
        Database::Postgres => on_postgres(bench_database).await?,
        Database::SqliteFull | Database::SqliteNormal => on_sqlite(bench_database)?,
    }
    let inserted = EVENTS as f64 / begun.elapsed().as_secs_f64();
    report.put(format!("`send_many` of {EVENTS}"), rate, "a second", "each a new instance");
    report.put(format!("the same rows by INSERTs of {ROWS} rows"), inserted, "a second", "one connection");
    report.put("`send_many`, share of the INSERTs", 100.0 * rate / inserted, "%", "");
    Ok(())
}

/// The rows of one INSERT: instance, key, call and payload.
fn rows(from: usize) -> impl Iterator<Item = (Uuid, String, Uuid, Vec<u8>)> {
    let payload = || format!("{{\"text\":\"{}\"}}", text()).into_bytes();
    (from..from + ROWS).map(move |n| (Uuid::now_v7(), format!("row-{n}"), Uuid::now_v7(), payload()))
}

async fn on_postgres(bench_database: &BenchDatabase) -> Result {
    let mut connection = PgConnection::connect(&bench_database.url).await?;
    let insert = format!(
        "insert into fsm_instances ({COLUMNS})
         select w.id, 'pulse', w.key, 'running', false, 0, 0, 0, 7, 7, true, w.call, 1, 'scheduled', 'begun', 'Begin', w.payload, 'begun', 7, 7, 7,
             25, 5000000, 3600000000, $5, 7, 0
         from unnest($1::uuid[], $2::text[], $3::uuid[], $4::bytea[]) w (id, key, call, payload)"
    );
    for from in (0..EVENTS).step_by(ROWS) {
        let (mut ids, mut keys, mut calls, mut payloads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (id, key, call, payload) in rows(from) {
            ids.push(id);
            keys.push(key);
            calls.push(call);
            payloads.push(payload);
        }
        let query = sqlx::query(sqlx::AssertSqlSafe(insert.clone())).bind(ids).bind(keys).bind(calls).bind(payloads).bind(RETRY);
        query.execute(&mut connection).await?;
    }
    Ok(())
}

fn on_sqlite(bench_database: &BenchDatabase) -> Result {
    let synchronous = if bench_database.kind == Database::SqliteFull { "full" } else { "normal" };
    let connection = rusqlite::Connection::open(bench_database.file())?;
    connection.execute_batch(&format!("pragma foreign_keys = on; pragma journal_mode = wal; pragma synchronous = {synchronous}"))?;
    let insert = format!(
        "insert into fsm_instances ({COLUMNS})
         values (?1, 'pulse', ?2, 'running', 0, 0, 0, 0, 7, 7, 1, ?3, 1, 'scheduled', 'begun', 'Begin', ?4, 'begun', 7, 7, 7, 25, 5000000,
             3600000000, ?5, 7, 0)"
    );
    for from in (0..EVENTS).step_by(ROWS) {
        connection.execute_batch("begin immediate")?;
        for (id, key, call, payload) in rows(from) {
            connection.prepare_cached(&insert)?.execute((id, key, call, payload, RETRY))?;
        }
        connection.execute_batch("commit")?;
    }
    Ok(())
}

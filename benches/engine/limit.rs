//! The limit: the rate of the statements that every transition needs, on the engine's tables, without an engine around them.
//!
//! Each batch takes two commits. The first one opens the call of an event, already handed to a worker, and logs it. The second one appends
//! the ended attempt and updates the instance. Nothing is read or decided, and constant values are part of the statements.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::ToSql;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::arguments::{Arguments, Instances};
use crate::database::{BenchDatabase, Database};
use crate::machine::{now_us, text};
use crate::report::Report;

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The number of concurrent batches on PostgreSQL. More were not faster on two cores.
const CONNECTIONS: usize = 4;
const RETRY: &str = r#"{"retries":25,"interval":{"secs":5,"nanos":0},"backoff":2.0,"max":{"secs":3600,"nanos":0}}"#;

const CREATE: &str = "
    insert into fsm_instances (instance_id, machine, key, status, state, paused, version, record, call_id, attempt, is_open, error,
        inbox_head, inbox_tail, created_at, updated_at)
    values ($1, 'limit', $2, 'running', 'stepped', false, 1, null, null, null, false, null, 0, 0, $3, $3)";

const POSTGRES: [[&str; 2]; 2] = [
    [
        "update fsm_instances i
         set is_open = true, call_id = w.call_id, attempt = 1, attempt_state = 'executing', verb = 'stepped', event = 'step',
             payload = w.payload, from_state = 'stepped', to_state = 'stepped', attempt_created_at = w.at, scheduled_at = w.at, due_at = null,
             remaining_attempts = 25, backoff = 5000000, max_backoff = 3600000000, retry = $5, first_at = w.at, worker = $6,
             started_at = w.at, previous = i.call_id, finished_at = null, attempt_error = null, updated_at = w.at,
             row_version = i.row_version + 1
         from unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::bigint[]) as w (instance_id, call_id, payload, at)
         where i.instance_id = w.instance_id",
        "insert into fsm_session_log (session_id, number, instances)
         select $6, (select coalesce(max(l.number), 0) + 1 from fsm_session_log l where l.session_id = $6), string_agg(uuid_send(w.id), '')
         from unnest($1::uuid[]) as w (id)",
    ],
    [
        "insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at,
             scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, previous)
         select i.call_id, i.attempt, i.instance_id, i.machine, i.verb, i.event, i.payload, i.from_state, i.to_state, 'success',
             i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.max_backoff, i.retry, i.first_at, i.worker,
             i.started_at, w.at, i.previous
         from unnest($1::uuid[], $2::uuid[], $4::bigint[]) as w (instance_id, call_id, at)
         join fsm_instances i on i.instance_id = w.instance_id and i.call_id = w.call_id and i.worker = $6",
        "update fsm_instances i
         set is_open = false, attempt_state = 'success', finished_at = w.at, payload = null, state = 'stepped', version = i.version + 1,
             updated_at = w.at, row_version = i.row_version + 1
         from unnest($1::uuid[], $2::uuid[], $4::bigint[]) as w (instance_id, call_id, at)
         where i.instance_id = w.instance_id",
    ],
];

const SQLITE: [&[&str]; 2] = [
    &["update fsm_instances
    set is_open = 1, call_id = ?2, attempt = 1, attempt_state = 'executing', verb = 'stepped', event = 'step', payload = ?3,
        from_state = 'stepped', to_state = 'stepped', attempt_created_at = ?4, scheduled_at = ?4, due_at = null, remaining_attempts = 25,
        backoff = 5000000, max_backoff = 3600000000, retry = ?5, first_at = ?4, worker = ?6, started_at = ?4, previous = call_id,
        finished_at = null, attempt_error = null, updated_at = ?4, row_version = row_version + 1
    where instance_id = ?1"],
    &[
        "insert into fsm_async_calls (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, created_at,
             scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, worker, started_at, finished_at, previous)
         select i.call_id, i.attempt, i.instance_id, i.machine, i.verb, i.event, i.payload, i.from_state, i.to_state, 'success',
             i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.max_backoff, i.retry, i.first_at, i.worker,
             i.started_at, ?4, i.previous
         from fsm_instances i
         where i.instance_id = ?1 and i.call_id = ?2 and i.worker = ?6",
        "update fsm_instances
         set is_open = 0, attempt_state = 'success', finished_at = ?4, payload = null, state = 'stepped', version = version + 1,
             updated_at = ?4, row_version = row_version + 1
         where instance_id = ?1",
    ],
];

/// Measures the transitions per second for each batch size.
pub async fn measure(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result<(), Box<dyn Error>> {
    bench_database.migrate().await?;
    let each = arguments.each.div_f64(1.5);
    for (turn, &batch) in arguments.batches.iter().enumerate() {
        let rate = match bench_database.kind {
            Database::Postgres => on_postgres(bench_database, turn, arguments.instances(), batch, each).await,
            _ => on_sqlite(bench_database, turn, arguments.instances(), batch, each).await,
        };
        let comment = if bench_database.kind.is_postgres() {
            format!("raw statements, {CONNECTIONS} connections")
        } else {
            "raw statements".to_owned()
        };
        report.put(format!("limit, batches of {batch}"), rate.map_err(|error| error.to_string())?, "a second", comment);
    }
    Ok(())
}

/// Returns the transitions per second with batches of one size.
pub async fn measure_one(bench_database: &BenchDatabase, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    match bench_database.kind {
        Database::Postgres => on_postgres(bench_database, 0, instances, batch, each).await,
        Database::SqliteFull | Database::SqliteNormal => on_sqlite(bench_database, 0, instances, batch, each).await,
    }
}

/// The values of the rows of one batch.
struct Rows {
    instances: Vec<Uuid>,
    calls: Vec<Uuid>,
    payloads: Vec<Vec<u8>>,
    at: Vec<i64>,
}

impl Rows {
    fn next(instances: &[Uuid], order: Instances, from: &mut usize, batch: usize) -> Rows {
        let mut rows = Rows { instances: Vec::new(), calls: Vec::new(), payloads: Vec::new(), at: Vec::new() };
        let at = i64::try_from(now_us()).unwrap_or(0);
        for _ in 0..batch.min(instances.len()) {
            rows.instances.push(instances[order.nth(*from)]);
            rows.calls.push(Uuid::now_v7());
            rows.payloads.push(format!("{{\"text\":\"{}\"}}", text()).into_bytes());
            rows.at.push(at);
            *from += 1;
        }
        rows
    }
}

async fn on_postgres(bench_database: &BenchDatabase, turn: usize, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let mut working = tokio::task::JoinSet::new();
    for lane in 0..CONNECTIONS {
        let mut connection = PgConnection::connect(&bench_database.url).await?;
        let own = Instances { count: instances.count / CONNECTIONS, ..instances };
        let ids: Vec<Uuid> = (0..own.count).map(|_| Uuid::now_v7()).collect();
        sqlx::raw_sql("begin").execute(&mut connection).await?;
        for (n, id) in ids.iter().enumerate() {
            sqlx::query(CREATE).bind(id).bind(format!("limit-{turn}-{lane}-{n}")).bind(0_i64).execute(&mut connection).await?;
        }
        sqlx::raw_sql("commit").execute(&mut connection).await?;
        let (done, is_over) = (Arc::clone(&done), Arc::clone(&is_over));
        working.spawn(async move {
            let (worker, mut from) = (Uuid::new_v4(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let rows = Rows::next(&ids, own, &mut from, batch);
                for half in POSTGRES {
                    sqlx::raw_sql("begin").execute(&mut connection).await?;
                    for statement in half {
                        // Not every statement uses every value, and PostgreSQL cannot derive the type of an unused one.
                        run_postgres(&mut connection, statement, &rows, worker).await?;
                    }
                    sqlx::raw_sql("commit").execute(&mut connection).await?;
                }
                done.fetch_add(rows.calls.len() as u64, Ordering::Relaxed);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    let rate = rate(&done, each).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    Ok(rate)
}

async fn run_postgres(connection: &mut PgConnection, statement: &'static str, rows: &Rows, worker: Uuid) -> Result {
    let text = format!("with v as (select $1::uuid[], $2::uuid[], $3::bytea[], $4::bigint[], $5::text, $6::uuid) {statement}");
    let query = sqlx::query(AssertSqlSafe(text)).bind(&rows.instances).bind(&rows.calls).bind(&rows.payloads).bind(&rows.at);
    query.bind(RETRY).bind(worker).execute(connection).await?;
    Ok(())
}

async fn on_sqlite(bench_database: &BenchDatabase, turn: usize, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    let synchronous = if bench_database.kind == Database::SqliteFull { "full" } else { "normal" };
    let connection = rusqlite::Connection::open(bench_database.file())?;
    connection.execute_batch(&format!("pragma foreign_keys = on; pragma journal_mode = wal; pragma synchronous = {synchronous};"))?;
    let ids: Vec<Uuid> = (0..instances.count).map(|_| Uuid::now_v7()).collect();
    connection.execute_batch("begin immediate")?;
    for (n, id) in ids.iter().enumerate() {
        connection.prepare_cached(CREATE)?.execute((id, format!("limit-{turn}-{n}"), 0_i64))?;
    }
    connection.execute_batch("commit")?;
    let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (counted, over) = (Arc::clone(&done), Arc::clone(&is_over));
    let working = tokio::task::spawn_blocking(move || {
        let (worker, mut from) = (Uuid::new_v4(), 0);
        while !over.load(Ordering::Relaxed) {
            let rows = Rows::next(&ids, instances, &mut from, batch);
            for half in SQLITE {
                connection.prepare_cached("begin immediate")?.execute(())?;
                for statement in half.iter().copied() {
                    run_sqlite(&connection, statement, &rows, worker)?;
                }
                connection.prepare_cached("commit")?.execute(())?;
            }
            counted.fetch_add(rows.calls.len() as u64, Ordering::Relaxed);
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });
    let rate = rate(&done, each).await;
    is_over.store(true, Ordering::Relaxed);
    working.await??;
    Ok(rate)
}

/// Runs the statement for each row.
fn run_sqlite(connection: &rusqlite::Connection, statement: &str, rows: &Rows, worker: Uuid) -> Result {
    let mut statement = connection.prepare_cached(statement)?;
    for row in 0..rows.calls.len() {
        let values: [(usize, &dyn ToSql); 6] =
            [(1, &rows.instances[row]), (2, &rows.calls[row]), (3, &rows.payloads[row]), (4, &rows.at[row]), (5, &RETRY), (6, &worker)];
        // Not every statement uses every value.
        for (index, value) in values.into_iter().take(statement.parameter_count()) {
            statement.raw_bind_parameter(index, value)?;
        }
        statement.raw_execute()?;
    }
    Ok(())
}

/// Returns the rate over a time, after a warm-up.
pub async fn rate(done: &AtomicU64, each: Duration) -> f64 {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (begun, before) = (Instant::now(), done.load(Ordering::Relaxed));
    tokio::time::sleep(each).await;
    (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
}

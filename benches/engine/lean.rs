//! The lean limit: the rate of durable transitions on a table layout that is made for transitions, without an engine around it.
//!
//! The layout has all columns and keys that a real engine needs, and it shares no code with this engine. A transition takes two statements
//! in two commits: a send writes the open call into the row of its instance, and its end inserts the attempt into an append-only table and
//! updates the instance. On PostgreSQL each batch of sends also adds one row to a log of open calls, which would be used to find the calls
//! of a dead worker.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::arguments::Instances;
use crate::database::{BenchDatabase, Database};
use crate::limit::rate;
use crate::machine::{now_us, text};

type Result<T = (), E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The number of PostgreSQL connections.
const CONNECTIONS: usize = 2;
/// The number of batches after which the log is trimmed.
const TRIM_EVERY: i64 = 200;
/// The number of recent log rows of a connection that a trim keeps.
const KEPT: i64 = 10;

const POSTGRES_TABLES: &str = "
    drop schema if exists lean cascade;
    create schema lean;
    create table lean.instances (
        instance_id uuid primary key, machine text not null, key text not null, status text not null, state text, paused boolean not null,
        version bigint not null, record bytea, call_id uuid, attempt bigint, call_state text, verb text, event text, payload bytea,
        to_state text, worker uuid, scheduled_at bigint, started_at bigint, due_at bigint, remaining bigint, backoff bigint,
        max_backoff bigint, retry text, first_at bigint, previous uuid, error text, inbox_head bigint not null, inbox_tail bigint not null,
        created_at bigint not null, updated_at bigint not null, pruned bigint not null default 0, unique (machine, key)
    ) with (fillfactor = 50);
    create index on lean.instances (machine, due_at) where due_at is not null;
    create index on lean.instances (machine, instance_id) where status = 'error';
    create table lean.attempts (
        call_id uuid not null, attempt bigint not null, instance_id uuid not null, machine text not null, verb text not null,
        event text not null, payload bytea, from_state text, to_state text not null, state text not null, scheduled_at bigint, worker uuid,
        started_at bigint, finished_at bigint, error text, previous uuid, primary key (call_id, attempt)
    );
    create table lean.open_log (worker uuid not null, number bigint not null, instances uuid[] not null, primary key (worker, number))";

const POSTGRES_INSTANCES: &str = "
    insert into lean.instances (instance_id, machine, key, status, paused, version, record, inbox_head, inbox_tail, created_at, updated_at)
    select id, 'payment', 'order-' || n, 'running', false, 0, decode(repeat('ab', 40), 'hex'), 0, 0, 0, 0
    from unnest($1::uuid[]) with ordinality t (id, n)";

/// These plans do not depend on statistics. The tables are new, and a plan that is made for empty tables would be kept.
const POSTGRES_SESSION: &str = "
    set enable_hashjoin = off;
    set enable_mergejoin = off;
    set enable_seqscan = off;
    set enable_bitmapscan = off;
    set plan_cache_mode = force_generic_plan";

const POSTGRES_SEND: &str = "
    with written as (
        update lean.instances i
        set call_id = w.call_id, attempt = 1, call_state = 'executing', verb = 'paid', event = 'Paid', payload = w.payload,
            to_state = 'paid', worker = $4, scheduled_at = $5, started_at = $5, remaining = 10, backoff = 5000000,
            max_backoff = 3600000000, first_at = $5, previous = i.call_id, updated_at = $5
        from unnest($1::uuid[], $2::uuid[], $3::bytea[]) w (call_id, instance_id, payload)
        where i.instance_id = w.instance_id and i.status = 'running'
        returning i.instance_id
    )
    insert into lean.open_log
    select $4, $6, array_agg(instance_id)
    from written";

const POSTGRES_END: &str = "
    with written as (
        update lean.instances i
        set state = 'paid', call_state = null, payload = null, worker = null, version = i.version + 1, updated_at = $6, record = w.record
        from unnest($1::uuid[], $2::uuid[], $3::bytea[], $4::bytea[]) w (call_id, instance_id, record, payload)
        where i.instance_id = w.instance_id and i.call_id = w.call_id and i.call_state = 'executing' and i.worker = $5
        returning w.call_id, i.instance_id, i.machine, i.verb, i.event, w.payload, i.to_state, i.scheduled_at, i.started_at, i.previous
    )
    insert into lean.attempts (call_id, attempt, instance_id, machine, verb, event, payload, from_state, to_state, state, scheduled_at, worker,
        started_at, finished_at, previous)
    select call_id, 1, instance_id, machine, verb, event, payload, 'paid', to_state, 'success', scheduled_at, $5, started_at, $6, previous
    from written";

const POSTGRES_TRIM: &str = "delete from lean.open_log where worker = $1 and number < $2";

const SQLITE_TABLES: &str = "
    create table lean_instances (
        id integer primary key, instance_id blob not null unique, machine text not null, key text not null, status text not null, state text,
        paused int not null, version int not null, record blob, call_id blob, attempt int, call_state text, verb text, event text,
        payload blob, to_state text, worker blob, scheduled_at int, started_at int, due_at int, remaining int, backoff int,
        max_backoff int, retry text, first_at int, previous int, error text, inbox_head int not null, inbox_tail int not null,
        created_at int not null, updated_at int not null, unique (machine, key)
    );
    create index lean_due on lean_instances (machine, due_at) where due_at is not null;
    create index lean_error on lean_instances (machine, id) where status = 'error';
    create table lean_attempts (
        id integer primary key, call_id blob not null, attempt int not null, instance int not null, verb text not null,
        event text not null, payload blob, from_state text, to_state text not null, state text not null, scheduled_at int, worker blob,
        started_at int, finished_at int, error text, previous int
    );";

const SQLITE_INSTANCE: &str = "
    insert into lean_instances (instance_id, machine, key, status, paused, version, record, inbox_head, inbox_tail, created_at, updated_at)
    values (?1, 'payment', ?2, 'running', 0, 0, ?3, 0, 0, 0, 0)";

const SQLITE_SEND: &str = "
    update lean_instances
    set call_id = ?2, attempt = 1, call_state = 'executing', verb = 'paid', event = 'Paid', payload = ?3, to_state = 'paid', worker = ?4,
        scheduled_at = ?5, started_at = ?5, remaining = 10, backoff = 5000000, max_backoff = 3600000000, first_at = ?5, updated_at = ?5
    where id = ?1 and status = 'running'";

const SQLITE_ATTEMPT: &str = "
    insert into lean_attempts (call_id, attempt, instance, verb, event, payload, from_state, to_state, state, scheduled_at, worker, started_at,
        finished_at)
    values (?1, 1, ?2, 'paid', 'Paid', ?3, 'paid', 'paid', 'success', ?4, ?5, ?4, ?4)";

const SQLITE_END: &str = "
    update lean_instances
    set state = 'paid', call_state = null, payload = null, worker = null, version = version + 1, updated_at = ?4, record = ?3, previous = ?6
    where id = ?1 and call_id = ?2 and call_state = 'executing' and worker = ?5";

/// Returns the transitions per second with batches of this size, on fresh tables.
pub async fn measure(bench_database: &BenchDatabase, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    match bench_database.kind {
        Database::Postgres => on_postgres(bench_database, instances, batch, each).await,
        Database::SqliteFull | Database::SqliteNormal => on_sqlite(bench_database, instances, batch, each).await,
    }
}

/// Describes the measured layout, for the report.
pub fn about(database: Database) -> String {
    if database.is_postgres() {
        format!("lean layout with a log of open calls, {CONNECTIONS} connections")
    } else {
        "lean layout".to_owned()
    }
}

fn payload() -> Vec<u8> {
    format!("{{\"text\":\"{}\"}}", text()).into_bytes()
}

fn moment() -> i64 {
    i64::try_from(now_us()).unwrap_or(0)
}

async fn on_postgres(bench_database: &BenchDatabase, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    let mut connection = PgConnection::connect(&bench_database.url).await?;
    sqlx::raw_sql(POSTGRES_TABLES).execute(&mut connection).await?;
    let own = Instances { count: instances.count / CONNECTIONS, ..instances };
    let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    // All rows are created before the first transition, in the order of their ids.
    let ids: Vec<Uuid> = (0..own.count * CONNECTIONS).map(|_| Uuid::now_v7()).collect();
    sqlx::query(POSTGRES_INSTANCES).bind(&ids).execute(&mut connection).await?;
    sqlx::raw_sql("vacuum analyze lean.instances").execute(&mut connection).await?;
    let mut working = tokio::task::JoinSet::new();
    for ids in ids.chunks(own.count).map(<[Uuid]>::to_vec) {
        let mut connection = PgConnection::connect(&bench_database.url).await?;
        sqlx::raw_sql(POSTGRES_SESSION).execute(&mut connection).await?;
        let (done, is_over) = (Arc::clone(&done), Arc::clone(&is_over));
        working.spawn(async move {
            let (worker, mut from, mut number) = (Uuid::new_v4(), 0, 0_i64);
            while !is_over.load(Ordering::Relaxed) {
                let size = batch.min(own.count);
                let batch: Vec<Uuid> = (from..from + size).map(|n| ids[own.nth(n)]).collect();
                from += size;
                number += 1;
                one_batch(&mut connection, &batch, worker, number).await?;
                done.fetch_add(size as u64, Ordering::Relaxed);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    let rate = rate(&done, each).await;
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = working.join_next().await {
        ended??;
    }
    sqlx::raw_sql("drop schema lean cascade").execute(&mut connection).await?;
    Ok(rate)
}

async fn one_batch(connection: &mut PgConnection, instances: &[Uuid], worker: Uuid, number: i64) -> Result {
    let calls: Vec<Uuid> = instances.iter().map(|_| Uuid::now_v7()).collect();
    let payloads: Vec<Vec<u8>> = instances.iter().map(|_| payload()).collect();
    let records = vec![vec![b'r'; 40]; instances.len()];
    let now = moment();
    let send = sqlx::query(POSTGRES_SEND).bind(&calls).bind(instances).bind(&payloads).bind(worker).bind(now).bind(number);
    expect(send.execute(&mut *connection).await?.rows_affected(), 1)?;
    if number % TRIM_EVERY == 0 {
        sqlx::query(POSTGRES_TRIM).bind(worker).bind(number - KEPT).execute(&mut *connection).await?;
    }
    let end = sqlx::query(POSTGRES_END).bind(&calls).bind(instances).bind(&records).bind(&payloads).bind(worker).bind(now);
    expect(end.execute(connection).await?.rows_affected(), instances.len() as u64)
}

/// Returns an error if a statement did not write the expected number of rows, because the figure would be meaningless then.
fn expect(written: u64, expected: u64) -> Result {
    if written == expected { Ok(()) } else { Err(format!("{written} rows were written instead of {expected}").into()) }
}

async fn on_sqlite(bench_database: &BenchDatabase, instances: Instances, batch: usize, each: Duration) -> Result<f64> {
    let synchronous = if bench_database.kind == Database::SqliteFull { "full" } else { "normal" };
    let file = PathBuf::from(format!("{}.lean", bench_database.file()));
    let connection = rusqlite::Connection::open(&file)?;
    connection.execute_batch(&format!("pragma journal_mode = wal; pragma synchronous = {synchronous}; pragma cache_size = -65536"))?;
    connection.execute_batch(SQLITE_TABLES)?;
    connection.execute_batch("begin")?;
    for n in 0..instances.count {
        connection.prepare_cached(SQLITE_INSTANCE)?.execute((Uuid::now_v7(), format!("order-{n}"), [7_u8; 40]))?;
    }
    connection.execute_batch("commit")?;
    let (done, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (counted, over) = (Arc::clone(&done), Arc::clone(&is_over));
    let working = tokio::task::spawn_blocking(move || {
        let (worker, mut from) = (Uuid::new_v4(), 0);
        while !over.load(Ordering::Relaxed) {
            let rows: Vec<(i64, Uuid)> = (from..from + batch).map(|n| (instances.nth(n) as i64 + 1, Uuid::now_v7())).collect();
            from += batch;
            one_sqlite_batch(&connection, &rows, worker)?;
            counted.fetch_add(batch as u64, Ordering::Relaxed);
        }
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });
    let rate = rate(&done, each).await;
    is_over.store(true, Ordering::Relaxed);
    working.await??;
    for suffix in ["", "-wal", "-shm"] {
        // The log and its index do not exist any more if the last connection was closed cleanly.
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    Ok(rate)
}

fn one_sqlite_batch(connection: &rusqlite::Connection, rows: &[(i64, Uuid)], worker: Uuid) -> Result {
    let (payload, record, now) = (payload(), [b'r'; 40], moment());
    connection.prepare_cached("begin immediate")?.execute(())?;
    let mut send = connection.prepare_cached(SQLITE_SEND)?;
    for (id, call) in rows {
        expect(send.execute((id, call, &payload, worker, now))? as u64, 1)?;
    }
    connection.prepare_cached("commit")?.execute(())?;
    connection.prepare_cached("begin immediate")?.execute(())?;
    let (mut attempt, mut end) = (connection.prepare_cached(SQLITE_ATTEMPT)?, connection.prepare_cached(SQLITE_END)?);
    for (id, call) in rows {
        attempt.execute((call, id, &payload, now, worker))?;
        expect(end.execute((id, call, record, now, worker, connection.last_insert_rowid()))? as u64, 1)?;
    }
    connection.prepare_cached("commit")?.execute(())?;
    Ok(())
}

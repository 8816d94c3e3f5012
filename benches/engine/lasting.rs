//! The rate over millions of transitions, and the rate while an old snapshot keeps the database from removing old row versions.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::arguments::{Arguments, Measurement};
use crate::database::BenchDatabase;
use crate::load::{Load, begin_all};
use crate::machine::Counters;
use crate::report::Report;
use crate::sizes::Sizes;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// The number of callers.
const CALLERS: usize = 2000;
/// The number of parts for which the rate is reported.
const PARTS: u64 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// The time for which the snapshot stays open, and the time for which the rate is measured afterwards, in minutes.
const MINUTES: u64 = 10;
const MINUTES_AFTER: u64 = 2;

/// A connection with an open snapshot.
enum OpenSnapshot {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// Measures the rate of each part of many transitions on a database of its own, or the rate before, during and after an open snapshot.
pub async fn measure(bench_database: &BenchDatabase, arguments: &Arguments, report: &mut Report) -> Result {
    let runtime = bench_database.builder().data(Arc::<Counters>::default()).start().await?;
    begin_all(&runtime, "lasting", arguments.instances().count).await?;
    let before = Sizes::of(bench_database).await?;
    let mut load = Load::begin(&runtime, "lasting", arguments.instances(), CALLERS);
    let mut rates = Rates { bench_database, begun: Instant::now(), first: None, report };
    if arguments.names(Measurement::Snapshot) {
        rates.minute(&mut load, "before it, a minute").await?;
        let snapshot = OpenSnapshot::open(bench_database).await?;
        for minute in 1..=MINUTES {
            rates.minute(&mut load, &format!("an old snapshot, the {} minute", ordinal(minute))).await?;
        }
        snapshot.close().await?;
        for minute in 1..=MINUTES_AFTER {
            rates.minute(&mut load, &format!("after it, the {} minute", ordinal(minute))).await?;
        }
    } else {
        for part in 1..=PARTS {
            let what = format!("lasting, the {} tenth of {}", ordinal(part), arguments.transitions);
            let until = arguments.transitions * part / PARTS;
            rates.put(&mut load, &what, |load| load.done() >= until).await?;
        }
    }
    let done = load.done() as f64;
    load.end().await?;
    report.put("each", 1.0, "transition", Sizes::of(bench_database).await?.each(before, done));
    bench_database.analyze().await?;
    let violations = runtime.check_invariants().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}

/// Rates in relation to the first one.
struct Rates<'a> {
    bench_database: &'a BenchDatabase,
    begun: Instant,
    first: Option<f64>,
    report: &'a mut Report,
}

impl Rates<'_> {
    async fn minute(&mut self, load: &mut Load, what: &str) -> Result {
        let end = Instant::now() + MINUTE;
        self.put(load, what, |_| Instant::now() >= end).await
    }

    /// Measures and reports the rate until `is_over` returns true.
    async fn put(&mut self, load: &mut Load, what: &str, is_over: impl Fn(&Load) -> bool) -> Result {
        let (then, now) = (load.done(), Instant::now());
        while !is_over(load) {
            load.check()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let rate = (load.done() - then) as f64 / now.elapsed().as_secs_f64();
        let share = 100.0 * rate / *self.first.get_or_insert(rate);
        let sum = Sizes::of(self.bench_database).await?.sum();
        let comment = format!("{share:.0} % of the first; after {:.0} s: {sum}", self.begun.elapsed().as_secs_f64());
        self.report.put(what, rate, "a second", comment);
        Ok(())
    }
}

impl OpenSnapshot {
    async fn open(bench_database: &BenchDatabase) -> Result<OpenSnapshot> {
        let look = "select count(*) from fsm_instances";
        if bench_database.kind.is_postgres() {
            let mut connection = PgConnection::connect(&bench_database.url).await?;
            sqlx::raw_sql("begin isolation level repeatable read").execute(&mut connection).await?;
            sqlx::raw_sql(look).execute(&mut connection).await?;
            return Ok(OpenSnapshot::Postgres(connection));
        }
        let mut connection = SqliteConnection::connect(&bench_database.url).await?;
        sqlx::raw_sql("begin").execute(&mut connection).await?;
        sqlx::raw_sql(look).execute(&mut connection).await?;
        Ok(OpenSnapshot::Sqlite(connection))
    }

    async fn close(self) -> Result {
        match self {
            OpenSnapshot::Postgres(connection) => connection.close().await?,
            OpenSnapshot::Sqlite(connection) => connection.close().await?,
        }
        Ok(())
    }
}

fn ordinal(number: u64) -> String {
    let ending = match number {
        1 => "st",
        2 => "nd",
        3 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

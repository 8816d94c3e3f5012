//! Whether it stays fast: over millions of transitions, and while somebody's old snapshot keeps the database from tidying up.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::arguments::{Arguments, Part};
use crate::database::Place;
use crate::load::{Load, begin_all};
use crate::machine::Ended;
use crate::report::Report;
use crate::sizes::Sizes;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

/// How many callers there are all the while.
const CALLERS: usize = 2000;
/// In how many parts the rate is told.
const PARTS: u64 = 10;

/// A connection on which a snapshot stays open.
enum Old {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

/// The rate of each part of many transitions, on a database of its own.
pub async fn measure(place: &Place, arguments: &Arguments, report: &mut Report) -> Result {
    let runtime = place.builder().data(Arc::<Ended>::default()).start().await?;
    begin_all(&runtime, "lasting", arguments.instances).await?;
    let old = if arguments.names(Part::Snapshot) { Some(Old::open(place).await?) } else { None };
    let before = Sizes::of(place).await?;
    let mut load = Load::begin(&runtime, "lasting", arguments.instances, CALLERS);
    let (begun, mut first) = (Instant::now(), None);
    for part in 0..PARTS {
        let (then, now) = (load.done(), Instant::now());
        while load.done() < arguments.transitions * (part + 1) / PARTS {
            load.check()?;
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let rate = (load.done() - then) as f64 / now.elapsed().as_secs_f64();
        let share = 100.0 * rate / *first.get_or_insert(rate);
        let sum = Sizes::of(place).await?.sum();
        let beside = format!("{share:.0} % of the first; after {:.0} s: {sum}", begun.elapsed().as_secs_f64());
        report.put(format!("lasting, the {} tenth of {}", ordinal(part + 1), arguments.transitions), rate, "a second", beside);
    }
    let done = load.done() as f64;
    load.end().await?;
    if let Some(old) = old {
        old.close().await?;
    }
    report.put("each", 1.0, "transition", Sizes::of(place).await?.each(before, done));
    place.analyze().await?;
    let violations = runtime.violations().await?;
    if !violations.is_empty() {
        return Err(format!("the database is not as it must be: {violations:?}").into());
    }
    Ok(runtime.shutdown().await?)
}

impl Old {
    async fn open(place: &Place) -> Result<Old> {
        let look = "select count(*) from fsm_instances";
        if place.database.is_postgres() {
            let mut connection = PgConnection::connect(&place.url).await?;
            sqlx::raw_sql("begin isolation level repeatable read").execute(&mut connection).await?;
            sqlx::raw_sql(look).execute(&mut connection).await?;
            return Ok(Old::Postgres(connection));
        }
        let mut connection = SqliteConnection::connect(&place.url).await?;
        sqlx::raw_sql("begin").execute(&mut connection).await?;
        sqlx::raw_sql(look).execute(&mut connection).await?;
        Ok(Old::Sqlite(connection))
    }

    async fn close(self) -> Result {
        match self {
            Old::Postgres(connection) => connection.close().await?,
            Old::Sqlite(connection) => connection.close().await?,
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

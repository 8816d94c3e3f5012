//! Reads the rows of a database without the engine's code, which the checker does not trust.

use std::collections::{HashMap, HashSet};

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ColumnIndex, ConnectOptions, Connection, Database, Decode, Row, Type};
use uuid::Uuid;

use crate::machine::{Totals, Work};
use crate::{Failure, sql};

/// An instance of one of the machines.
#[derive(Debug, Clone, Default)]
pub struct Instance {
    pub machine: String,
    pub key: String,
    pub status: String,
    pub state: Option<String>,
    pub version: i64,
    pub record: Option<Totals>,
    pub error: Option<String>,
    pub waiting: i64,
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub call: String,
    pub number: i64,
    pub instance: Uuid,
    pub verb: String,
    pub state: String,
    pub worker: Option<String>,
    pub finished_at: Option<i64>,
    /// The content of the event. Only the first attempt of a call has it.
    pub work: Option<Work>,
}

/// The rows of a database.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub instances: HashMap<Uuid, Instance>,
    pub attempts: Vec<Attempt>,
    /// The calls of rejected events, with the reasons.
    pub rejected: HashMap<String, String>,
    /// The rows that verbs wrote: call and amount.
    pub books: Vec<(String, i64)>,
    /// The limits of which calls hold a place, or for which they wait.
    pub held: Vec<String>,
}

impl Rows {
    /// The calls that succeeded.
    pub fn succeeded(&self) -> HashSet<&str> {
        self.attempts.iter().filter(|attempt| attempt.state == "success").map(|attempt| attempt.call.as_str()).collect()
    }

    /// The number of attempts with this final state.
    pub fn ended(&self, state: &str) -> usize {
        self.attempts.iter().filter(|attempt| attempt.state == state).count()
    }
}

/// A connection of the harness.
pub enum Db {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Executes the same expression on either connection.
macro_rules! on {
    ($db:expr, $conn:ident => $does:expr) => {
        match $db {
            Db::Sqlite($conn) => $does,
            Db::Postgres($conn) => $does,
        }
    };
}

impl Db {
    /// Connects without the engine.
    pub async fn connect(url: &str) -> Result<Db, Failure> {
        if url.starts_with("sqlite:") {
            let options: SqliteConnectOptions = url.parse()?;
            Ok(Db::Sqlite(options.busy_timeout(std::time::Duration::from_secs(30)).connect().await?))
        } else {
            Ok(Db::Postgres(PgConnection::connect(url).await?))
        }
    }

    /// Executes a statement without a result.
    pub async fn run(&mut self, statement: &'static str) -> Result<(), Failure> {
        on!(self, conn => { sqlx::raw_sql(statement).execute(conn).await?; });
        Ok(())
    }

    /// Runs a statement with these parameters.
    pub async fn run_with(&mut self, statement: &'static str, numbers: &[i64]) -> Result<(), Failure> {
        on!(self, conn => {
            let query = numbers.iter().fold(sqlx::query(statement), |query, number| query.bind(*number));
            query.execute(conn).await?;
        });
        Ok(())
    }

    /// The number that a statement returns.
    pub async fn number(&mut self, statement: &'static str) -> Result<i64, Failure> {
        Ok(on!(self, conn => sqlx::query_scalar(statement).fetch_one(conn).await?))
    }

    /// The number that a statement with one parameter returns: a time in microseconds since 1970.
    pub async fn number_at(&mut self, statement: &'static str, moment_us: u64) -> Result<i64, Failure> {
        let moment_us = i64::try_from(moment_us)?;
        Ok(on!(self, conn => sqlx::query_scalar(statement).bind(moment_us).fetch_one(conn).await?))
    }

    /// The texts that a statement returns.
    pub async fn texts(&mut self, statement: &'static str) -> Result<Vec<String>, Failure> {
        Ok(on!(self, conn => sqlx::query_scalar(statement).fetch_all(conn).await?))
    }

    /// The texts that a statement with one parameter returns.
    pub async fn texts_with(&mut self, statement: &'static str, text: &str) -> Result<Vec<String>, Failure> {
        Ok(on!(self, conn => sqlx::query_scalar(statement).bind(text).fetch_all(conn).await?))
    }

    /// The schema of each partition that this directory lists, with the URL of its database unless it is this one.
    pub async fn partitions(&mut self) -> Result<Vec<(String, Option<String>)>, Failure> {
        Ok(on!(self, conn => sqlx::query_as(sql::PARTITIONS).fetch_all(conn).await?))
    }

    /// Reads all rows.
    pub async fn read_all(&mut self) -> Result<Rows, Failure> {
        on!(self, conn => {
            let instances = sqlx::query(sql::INSTANCES).fetch_all(&mut *conn).await?;
            let attempts = sqlx::query(sql::ATTEMPTS).fetch_all(&mut *conn).await?;
            let rejected = sqlx::query(sql::REJECTED).fetch_all(&mut *conn).await?;
            let books = sqlx::query_as(sql::BOOKS).fetch_all(&mut *conn).await?;
            let held = sqlx::query_scalar(sql::HELD).fetch_all(&mut *conn).await?;
            Ok(Rows {
                instances: instances.iter().map(instance).collect::<Result<_, _>>()?,
                attempts: attempts.iter().map(attempt).collect::<Result<_, _>>()?,
                rejected: rejected.iter().map(rejection).collect::<Result<_, _>>()?,
                books,
                held,
            })
        })
    }
}

fn instance<R>(row: &R) -> Result<(Uuid, Instance), Failure>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> Uuid: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let record: Option<Vec<u8>> = row.try_get(6)?;
    let machine: String = row.try_get(1)?;
    // Receipts, items and moments have no record, and that of a crane has no money.
    let record = record
        .filter(|_| !matches!(&*machine, "receipt" | "item" | "bell" | "crane"))
        .map(|bytes| serde_json::from_slice(&bytes))
        .transpose()?;
    let found = Instance {
        machine,
        key: row.try_get(2)?,
        status: row.try_get(3)?,
        state: row.try_get(4)?,
        version: row.try_get(5)?,
        record,
        error: row.try_get(7)?,
        waiting: row.try_get(8)?,
    };
    Ok((row.try_get(0)?, found))
}

fn attempt<R>(row: &R) -> Result<Attempt, Failure>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> Uuid: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let (verb, payload): (String, Option<Vec<u8>>) = (row.try_get(3)?, row.try_get(6)?);
    // The engine makes the event of all items.
    let payload = payload.filter(|_| verb != "assembled");
    Ok(Attempt {
        call: row.try_get::<Uuid, _>(0)?.to_string(),
        number: row.try_get(1)?,
        instance: row.try_get(2)?,
        verb,
        state: row.try_get(4)?,
        worker: row.try_get::<Option<Uuid>, _>(5)?.map(|worker| worker.to_string()),
        finished_at: row.try_get(7)?,
        work: payload.map(|bytes| serde_json::from_slice(&bytes)).transpose()?,
    })
}

fn rejection<R>(row: &R) -> Result<(String, String), Failure>
where
    R: Row,
    R::Database: Database,
    usize: ColumnIndex<R>,
    for<'r> Uuid: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
{
    let call: Option<Uuid> = row.try_get(1)?;
    Ok((call.map(|call| call.to_string()).unwrap_or_default(), row.try_get::<Option<String>, _>(2)?.unwrap_or_default()))
}

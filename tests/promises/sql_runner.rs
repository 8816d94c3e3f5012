//! A machine that runs any SQL statement in the test bed's database, so that a test can damage a row or read one.

use crate::support::in_own_transaction;
use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

/// The number that the last statement returned.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    number: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Statement {
    text: String,
    is_postgres: bool,
}

#[verb]
async fn executed(ctx: &mut Ctx<'_>, record: &mut Found, event: Statement) -> Result {
    let text = AssertSqlSafe(event.text);
    record.number = in_own_transaction!(ctx, event.is_postgres, conn => sqlx::query_scalar(text).fetch_optional(conn).await?);
    Ok(())
}

fsm! {
    /// A machine with full access to the database.
    pub machine SqlRunner = "sql_runner" {
        keeps Found;
        start executed;
        executed -> executed;
    }
}

/// True if the test bed is on PostgreSQL.
pub fn is_postgres(bed: &TestBed) -> bool {
    bed.url().starts_with("postgres")
}

/// Runs a statement. Returns the number in its first row, if there is one.
pub async fn run(bed: &TestBed, text: impl Into<String>) -> Option<i64> {
    let runners = bed.machine::<SqlRunner>();
    runners.send("sql_runner", Statement { text: text.into(), is_postgres: is_postgres(bed) }).await.unwrap();
    let done = runners.settled("sql_runner").await.unwrap();
    assert_eq!(done.error, None);
    done.record.number
}

/// Returns a text as an SQL literal of bytes.
pub fn bytes(bed: &TestBed, text: &str) -> String {
    if is_postgres(bed) { format!("convert_to('{text}', 'UTF8')") } else { format!("cast('{text}' as blob)") }
}

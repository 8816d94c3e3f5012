//! A machine that runs any SQL statement in the test bed's database, so that a test can damage a row or read one.

use crate::support::in_own_transaction;
use fsm::partition_of;
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
    record.number = in_own_transaction!(ctx, event.is_postgres, conn => sqlx::query_scalar::<_, Option<i64>>(text).fetch_optional(conn).await?.flatten());
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

/// Runs a statement in each partition. Returns the sum of the numbers in its first rows, if there are any.
pub async fn run(bed: &TestBed, text: impl Into<String>) -> Option<i64> {
    let (runners, text, mut sum) = (bed.machine::<SqlRunner>(), text.into(), None);
    for key in keys(bed.partitions()) {
        runners.send(&key, Statement { text: text.clone(), is_postgres: is_postgres(bed) }).await.unwrap();
        let done = runners.settled(&key).await.unwrap();
        assert_eq!(done.error, None);
        sum = done.record.number.map(|number| sum.unwrap_or(0) + number).or(sum);
    }
    sum
}

/// The key of a runner in each partition.
fn keys(partitions: u32) -> Vec<String> {
    let key_in = |partition| {
        let mut keys = (0..).map(|number| if number == 0 { "sql_runner".to_owned() } else { format!("sql_runner-{number}") });
        keys.find(|key| partition_of(key, partitions) == partition)
    };
    (0..partitions).filter_map(key_in).collect()
}

/// Returns a text as an SQL literal of bytes.
pub fn bytes(bed: &TestBed, text: &str) -> String {
    if is_postgres(bed) { format!("convert_to('{text}', 'UTF8')") } else { format!("cast('{text}' as blob)") }
}

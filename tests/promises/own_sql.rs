//! SQL of the user's own in the transaction that commits a transition.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;

use crate::payment::GatewayError;
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{in_own_transaction, promise};

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// The statements of a verb, and its behaviour after them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Write {
    statements: Vec<String>,
    is_postgres: bool,
    /// True if the verb ignores the errors of its statements.
    swallows: bool,
    /// The number of attempts that fail after the statements.
    failures: u32,
}

#[verb]
#[retry(2, "5s")]
async fn wrote(ctx: &mut Ctx<'_>, event: Write) -> Result {
    for statement in event.statements {
        let text = AssertSqlSafe(statement);
        let done = in_own_transaction!(ctx, event.is_postgres, conn => sqlx::query(text).execute(conn).await.map(drop));
        if !event.swallows {
            done?;
        }
    }
    if ctx.attempt() <= event.failures { Err(GatewayError("after it wrote".into()).into()) } else { Ok(()) }
}

/// An event whose verb uses the connection type of the other database.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mistake {
    is_postgres: bool,
}

#[verb]
async fn mistaken(ctx: &mut Ctx<'_>, event: Mistake) -> Result {
    in_own_transaction!(ctx, !event.is_postgres, _conn => Ok(()))
}

/// A memoised effect together with SQL of the verb's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    is_postgres: bool,
    /// True if the SQL comes before the effect.
    is_late: bool,
    failures: u32,
}

async fn written(ctx: &mut Ctx<'_>, is_postgres: bool, entry: &str) -> Result {
    let text = "insert into ledger values ($1)";
    in_own_transaction!(ctx, is_postgres, conn => sqlx::query(text).bind(entry.to_owned()).execute(conn).await.map(drop)?);
    Ok(())
}

#[verb]
#[retry(2, "5s")]
async fn stamped(ctx: &mut Ctx<'_>, event: Note) -> Result {
    let attempt = ctx.attempt();
    if event.is_late {
        written(ctx, event.is_postgres, "early").await?;
    }
    let note = ctx.once("note", async { Ok::<_, GatewayError>(format!("note of attempt {attempt}")) }).await?;
    let again = ctx.once("note", async { Ok::<_, GatewayError>("never".to_owned()) }).await?;
    assert_eq!(note, again, "the same name returns the stored result");
    if !event.is_late {
        written(ctx, event.is_postgres, &note).await?;
    }
    if attempt <= event.failures { Err(GatewayError("after it stamped".into()).into()) } else { Ok(()) }
}

fsm! {
    machine Clerk = "clerk" {
        start wrote | mistaken | stamped;
        any(wrote, mistaken, stamped) -> wrote;
    }
}

fn clerks() -> TestBedBuilder {
    TestBed::builder().only::<Clerk>().only::<SqlRunner>()
}

async fn with_ledger(bed: &TestBed) {
    run(bed, "create table ledger (entry text primary key)").await;
}

async fn entries(bed: &TestBed) -> i64 {
    run(bed, "select count(*) from ledger").await.unwrap()
}

fn writing(bed: &TestBed, statements: &[&str]) -> Write {
    let statements = statements.iter().map(|text| (*text).to_owned()).collect();
    Write { statements, is_postgres: is_postgres(bed), swallows: false, failures: 0 }
}

promise! {
    async fn what_a_verb_writes_is_there_once_and_only_with_its_transition(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        let write = writing(bed, &["insert into ledger values ('a')"]);
        clerks.send("c", Write { failures: 2, ..write }).await.unwrap();
        for failed in 1..=2 {
            bed.run_until_idle().await;
            assert_eq!((entries(bed).await, clerks.attempts("c").await.unwrap().len()), (0, failed + 1), "a failed attempt writes nothing");
            bed.advance(FIVE_SECONDS).await;
        }
        let clerk = clerks.get("c").await.unwrap().unwrap();
        assert_eq!((clerk.state, clerk.version, entries(bed).await), (Some(ClerkState::Wrote), 1, 1));
        bed.restart().await;
        bed.advance(Duration::from_secs(3600)).await;
        assert_eq!(entries(bed).await, 1);
    }
}

promise! {
    async fn a_statement_that_fails_fails_the_attempt(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        clerks.send("c", writing(bed, &["insert into ledger values ('a')", "insert into no_such_table values (1)"])).await.unwrap();
        bed.advance(2 * FIVE_SECONDS).await;
        let clerk = clerks.get("c").await.unwrap().unwrap();
        assert_eq!((clerk.status, clerk.version, entries(bed).await), (Status::Error, 0, 0));
        assert!(clerk.error.unwrap().contains("no_such_table"));
    }
}

promise! {
    /// PostgreSQL aborts the transaction and reports that only at the commit. SQLite rolls back only the one statement.
    async fn an_ignored_sql_error_never_commits_part_of_the_statements(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        let write = writing(bed, &["insert into ledger values ('a')", "insert into ledger values ('a')"]);
        clerks.send("c", Write { swallows: true, ..write }).await.unwrap();
        bed.run_until_idle().await;
        let clerk = clerks.get("c").await.unwrap().unwrap();
        if is_postgres(bed) {
            let call = clerk.call.expect("the attempt failed and is retried");
            assert_eq!((call.attempt, clerk.version, entries(bed).await), (2, 0, 0));
            let error = call.last_error.unwrap();
            assert!(error.starts_with("the verb's transaction was not committed: "), "{error}");
            bed.advance(2 * FIVE_SECONDS).await;
            assert_eq!((clerks.get("c").await.unwrap().unwrap().status, entries(bed).await), (Status::Error, 0));
        } else {
            assert_eq!((clerk.version, entries(bed).await), (1, 1));
        }
    }
}

promise! {
    /// A deferred constraint fails at the commit. The attempt fails as with any other failing statement.
    async fn a_commit_that_fails_is_a_failed_attempt(bed in clerks()) {
        with_ledger(bed).await;
        run(bed, "create table lines (entry text references ledger (entry) deferrable initially deferred)").await;
        let clerks = bed.machine::<Clerk>();
        clerks.send("c", writing(bed, &["insert into lines values ('nobody')"])).await.unwrap();
        bed.run_until_idle().await;
        let clerk = clerks.get("c").await.unwrap().unwrap();
        let call = clerk.call.expect("the attempt failed and is retried");
        assert_eq!((clerk.version, call.attempt), (0, 2));
        let error = call.last_error.unwrap();
        assert!(error.starts_with("the verb's transaction was not committed: "), "{error}");
        run(bed, "insert into ledger values ('nobody')").await;
        bed.advance(FIVE_SECONDS).await;
        let clerk = clerks.get("c").await.unwrap().unwrap();
        assert_eq!((clerk.state, clerk.version, run(bed, "select count(*) from lines").await), (Some(ClerkState::Wrote), 1, Some(1)));
    }
}

#[cfg(all(feature = "sqlite", feature = "postgres"))]
promise! {
    async fn the_connection_of_the_other_database_is_an_error_that_names_the_right_one(bed in clerks()) {
        let clerks = bed.machine::<Clerk>();
        clerks.send("c", Mistake { is_postgres: is_postgres(bed) }).await.unwrap();
        bed.run_until_idle().await;
        let error = clerks.get("c").await.unwrap().unwrap().error.unwrap();
        let says = match is_postgres(bed) {
            true => "this runtime is on PostgreSQL: `ctx.postgres()` has its connection",
            false => "this runtime is on SQLite: `ctx.sqlite()` has its connection",
        };
        assert_eq!(error, says);
    }
}

promise! {
    /// A transaction that the user begins inside is a savepoint, and its end is not the end of the attempt's transaction.
    async fn a_transaction_inside_is_a_savepoint(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        let statements = ["insert into ledger values ('a')", "savepoint mine", "insert into ledger values ('b')", "rollback to mine"];
        clerks.send("c", writing(bed, &statements)).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((clerks.get("c").await.unwrap().unwrap().version, entries(bed).await), (1, 1));
    }
}

promise! {
    async fn an_effect_is_remembered_before_own_sql_and_kept_when_that_is_undone(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        clerks.send("c", Note { is_postgres: is_postgres(bed), is_late: false, failures: 1 }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((entries(bed).await, run(bed, "select count(*) from fsm_once").await), (0, Some(1)));
        bed.advance(FIVE_SECONDS).await;
        assert_eq!(clerks.get("c").await.unwrap().unwrap().version, 1);
        assert_eq!(run(bed, "select count(*) from ledger where entry = 'note of attempt 1'").await, Some(1));
    }
}

promise! {
    /// SQLite has one writer. The verb's transaction holds the write lock, so an effect cannot commit at the same time.
    async fn an_effect_after_own_sql_is_an_error_on_sqlite_that_says_so(bed in clerks()) {
        with_ledger(bed).await;
        let clerks = bed.machine::<Clerk>();
        clerks.send("c", Note { is_postgres: is_postgres(bed), is_late: true, failures: 0 }).await.unwrap();
        bed.advance(2 * FIVE_SECONDS).await;
        let clerk = clerks.get("c").await.unwrap().unwrap();
        if is_postgres(bed) {
            assert_eq!((clerk.version, entries(bed).await), (1, 1));
        } else {
            let says = "`ctx.once(\"note\")` comes after `ctx.sqlite()`, which holds the one writer: call it before";
            assert_eq!((clerk.error.as_deref(), entries(bed).await), (Some(says), 0));
            assert_eq!(run(bed, "select count(*) from fsm_once").await, Some(0), "the effect was not stored");
        }
    }
}

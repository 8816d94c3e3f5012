//! Conditions of a PostgreSQL server. Each is imposed for a while and then reverted.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use crate::Failure;
use crate::load::now_us;
use crate::sql;
use crate::test_run::TestRun;

pub const NAMES: [&str; 7] =
    ["read-only", "cancelled", "terminated", "statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout", "locked"];
/// The interval at which statements are cancelled or sessions terminated.
const PAUSE: Duration = Duration::from_millis(30);

/// Rows that were locked, and the start and end of that time, in microseconds since 1970.
pub struct Locked {
    pub keys: Vec<String>,
    /// The start of a time of equal length before the lock, under no condition.
    pub calm_from_us: u64,
    pub from_us: u64,
    pub until_us: u64,
}

/// Imposes the condition of this name for a while, and reverts it. Returns the rows that were locked.
pub async fn impose(test_run: &mut TestRun<'_>, name: &str, each: Duration) -> Result<Option<Locked>, Failure> {
    match name {
        "read-only" => with_setting(test_run, "default_transaction_read_only", "on", each).await?,
        "cancelled" => disturb(test_run, sql::CANCEL, each).await?,
        "terminated" => disturb(test_run, sql::TERMINATE, each).await?,
        "locked" => {
            wait_for_open_work(test_run).await?;
            let calm_from_us = now_us();
            tokio::time::sleep(each).await;
            let locked = lock(test_run, calm_from_us, each).await?;
            wait_for_open_work(test_run).await?;
            return Ok(Some(locked));
        }
        // Shorter than most statements under load, but longer than some.
        timeout => with_setting(test_run, timeout, "4ms", each).await?,
    }
    Ok(None)
}

/// Waits until all calls and waiting events of now have ended, so that later measurements show no effect of an earlier condition.
async fn wait_for_open_work(test_run: &mut TestRun<'_>) -> Result<(), Failure> {
    let (begun, moment_us) = (Instant::now(), now_us());
    let mut db = test_run.db().await?;
    while db.number_at(sql::OPEN_SINCE, moment_us).await? > 0 {
        if begun.elapsed() > test_run.settle_within {
            let says = format!("what was under way when a condition had passed has ended within {:?}", test_run.settle_within);
            test_run.require(false, says);
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Sets a server setting for a while.
async fn with_setting(test_run: &mut TestRun<'_>, name: &str, value: &str, each: Duration) -> Result<(), Failure> {
    // New sessions of the harness get this setting too, so this session is kept and sets its own values.
    let mut session = PgConnection::connect(&test_run.test_server.cluster()?.url()).await?;
    for setting in ["default_transaction_read_only", "statement_timeout"] {
        run(&mut session, &format!("set {setting} = {}", if setting == "statement_timeout" { "0" } else { "off" })).await?;
    }
    run(&mut session, &format!("alter system set {name} = '{value}'")).await?;
    run(&mut session, "select pg_reload_conf()").await?;
    tokio::time::sleep(each).await;
    run(&mut session, &format!("alter system reset {name}")).await?;
    run(&mut session, "select pg_reload_conf()").await?;
    // The server's processes read the setting one after the other.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

async fn run(session: &mut PgConnection, statement: &str) -> Result<(), Failure> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(session).await?;
    Ok(())
}

/// Cancels or terminates statements or sessions at random intervals.
async fn disturb(test_run: &mut TestRun<'_>, how: &'static str, each: Duration) -> Result<(), Failure> {
    let mut db = test_run.db().await?;
    let begun = Instant::now();
    let mut disturbed = 0;
    while begun.elapsed() < each {
        disturbed += db.number(how).await?;
        tokio::time::sleep(PAUSE).await;
    }
    test_run.require(disturbed > 0, "something was there to be cancelled or terminated");
    Ok(())
}

/// Locks some live instances from another client.
async fn lock(test_run: &TestRun<'_>, calm_from_us: u64, each: Duration) -> Result<Locked, Failure> {
    let mut db = test_run.db().await?;
    let limit = Instant::now() + each;
    loop {
        db.run(sql::LOCK_BEGIN).await?;
        let from_us = now_us();
        let keys = db.texts(sql::LOCK_SOME).await?;
        // The instances live only for milliseconds and may have ended meanwhile.
        if !keys.is_empty() || Instant::now() > limit {
            tokio::time::sleep(each).await;
            db.run(sql::LOCK_END).await?;
            return Ok(Locked { keys, calm_from_us, from_us, until_us: now_us() });
        }
        db.run(sql::LOCK_END).await?;
    }
}

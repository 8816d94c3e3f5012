//! Conditions of a PostgreSQL server. Each is imposed for a while and then reverted.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use super::{Locked, calm};
use crate::Failure;
use crate::load::now_us;
use crate::sql;
use crate::stage::Stage;

pub const NAMES: [&str; 7] =
    ["read-only", "cancelled", "terminated", "statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout", "locked"];
/// The interval at which statements are cancelled or sessions terminated.
const PAUSE: Duration = Duration::from_millis(30);

/// Imposes the condition of this name for a while, and reverts it. Returns the rows that were locked.
pub async fn impose(stage: &mut Stage<'_>, name: &str, each: Duration) -> Result<Option<Locked>, Failure> {
    match name {
        "read-only" => with_setting(stage, "default_transaction_read_only", "on", each).await?,
        "cancelled" => disturb(stage, sql::CANCEL, each).await?,
        "terminated" => disturb(stage, sql::TERMINATE, each).await?,
        "locked" => {
            calm(stage).await?;
            let calm_from_us = now_us();
            tokio::time::sleep(each).await;
            let locked = lock(stage, calm_from_us, each).await?;
            calm(stage).await?;
            return Ok(Some(locked));
        }
        // Shorter than most statements under load, but longer than some.
        timeout => with_setting(stage, timeout, "4ms", each).await?,
    }
    Ok(None)
}

/// Sets a server setting for a while.
async fn with_setting(stage: &mut Stage<'_>, name: &str, value: &str, each: Duration) -> Result<(), Failure> {
    // New sessions of the harness get this setting too, so this session is kept and sets its own values.
    let mut session = PgConnection::connect(&stage.test_server.cluster()?.url()).await?;
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
async fn disturb(stage: &mut Stage<'_>, how: &'static str, each: Duration) -> Result<(), Failure> {
    let mut db = stage.db().await?;
    let begun = Instant::now();
    let mut struck = 0;
    while begun.elapsed() < each {
        struck += db.number(how).await?;
        tokio::time::sleep(PAUSE).await;
    }
    stage.require(struck > 0, "something was there to be cancelled or terminated");
    Ok(())
}

/// Locks some live instances from another client.
async fn lock(stage: &Stage<'_>, calm_from_us: u64, each: Duration) -> Result<Locked, Failure> {
    let mut db = stage.db().await?;
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

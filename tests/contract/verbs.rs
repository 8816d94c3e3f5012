//! The abilities of a verb by the contract: its context, failures, and the transaction of its own transition.

use std::io;

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};
use sqlx::Row;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    pub fails: u32,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Close;
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Greet {
    pub from: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fail {
    pub permanent: bool,
}

#[verb]
#[retry(3, "1s")]
async fn opened(ctx: &mut Ctx<'_>, event: Open) -> Result {
    assert_eq!((ctx.key(), ctx.max_attempts()), ("door-1", Some(4)));
    assert_eq!(ctx.is_last_attempt(), ctx.attempt() == 4);
    assert_eq!(ctx.last_error().is_some(), ctx.attempt() > 1);
    let key: String = ctx.once("key", async { Ok::<_, io::Error>("k".to_owned()) }).await?;
    assert!(!ctx.idempotency_key().is_empty() && key == "k");
    let cancelled = ctx.cancelled();
    drop(cancelled);
    if ctx.attempt() <= event.fails {
        return Err(io::Error::other("not yet").into());
    }
    let key = ctx.key().to_owned();
    ctx.send::<Other>("other-1", Greet { from: key })?;
    sqlx::query("create table if not exists notes (text text)").execute(&mut *ctx.sqlite().await?).await?;
    sqlx::query("insert into notes values ('opened')").execute(ctx.sqlite().await?).await?;
    ctx.next(Close)?;
    Ok(())
}
#[verb]
async fn closed(_event: Close) -> Result {
    Ok(())
}
#[verb]
async fn greeted(event: Greet) -> Result {
    assert_eq!(event.from, "door-1");
    Ok(())
}
#[verb]
#[retry(3, "1s")]
async fn failing(event: Fail) -> Result {
    let error = io::Error::other("no");
    Err(if event.permanent { Failure::permanent(error) } else { Failure::retry_after(error, Duration::from_secs(77)) })
}

fsm! {
    machine Door = "contract-door" {
        start opened;
        opened -> closed;
        end closed;
    }
}
fsm! {
    machine Other = "contract-other" {
        start greeted | failing;
        end greeted, failing;
    }
}

#[tokio::test]
async fn a_verb_memoises_sends_writes_and_leads_on() {
    let bed = TestBed::builder().only::<Door>().only::<Other>().sqlite().await;
    let doors = bed.machine::<Door>();
    doors.send("door-1", Open { fails: 2 }).await.unwrap();
    bed.advance(Duration::from_secs(10)).await;
    let door = doors.get("door-1").await.unwrap().unwrap();
    assert_eq!((door.state, door.status, door.version), (Some(DoorState::Closed), Status::Completed, 2));
    assert_eq!(bed.machine::<Other>().get("other-1").await.unwrap().unwrap().state, Some(OtherState::Greeted));
}

#[tokio::test]
async fn a_failure_says_whether_and_when_it_is_retried() {
    let bed = TestBed::builder().only::<Door>().only::<Other>().sqlite().await;
    let others = bed.machine::<Other>();
    others.send("o-1", Fail { permanent: true }).await.unwrap();
    others.send("o-2", Fail { permanent: false }).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(others.get("o-1").await.unwrap().unwrap().status, Status::Error);
    let call = others.get("o-2").await.unwrap().unwrap().call.unwrap();
    assert_eq!(call.next_at - bed.now(), Duration::from_secs(77));
}

#[tokio::test]
async fn an_event_is_sent_in_the_callers_own_transaction() {
    let folder = std::env::temp_dir().join(format!("fsm-contract-send-in-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite://{}/doors.db", folder.display());
    let runtime = Runtime::builder().database(&url).only::<Door>().only::<Other>().start().await.unwrap();
    let others = runtime.machine::<Other>();
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let mut tx = pool.begin_with("begin immediate").await.unwrap();
    sqlx::query("create table notes (text text)").execute(&mut *tx).await.unwrap();
    others.send_in(&mut tx, "o-1", Greet { from: "door-1".into() }).await.unwrap();
    tx.commit().await.unwrap();
    let other = others.settled("o-1").within(Duration::from_secs(60)).await.unwrap();
    assert_eq!(other.state, Some(OtherState::Greeted));
    let row = sqlx::query("select count(*) from notes").fetch_one(&pool).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 0);
    pool.close().await;
    runtime.shutdown().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

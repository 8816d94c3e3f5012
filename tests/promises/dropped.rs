//! A future of the library can be dropped at any of its await points: its work is then done completely or not at all, and the engine
//! continues.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{Filter, Handle, SendOutcome};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{Folder, assert_invariants_hold, promise, stride};

/// The moment at which a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum When {
    /// When it waits: its request is in progress.
    ItWaits,
    /// When it is woken: the answer has arrived and was not read.
    ItIsWoken,
}

const BOTH: [When; 2] = [When::ItWaits, When::ItIsWoken];

/// Polls the future `times` times and drops it then. Returns `None` unless it was ready before.
async fn poll_then_drop<F: IntoFuture>(times: usize, when: When, future: F) -> Option<F::Output> {
    let mut future = pin!(future.into_future());
    let mut polls = 0;
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if polls == times && when == When::ItWaits => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open;
/// The future that the verb drops, and the number of polls before.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Drop {
    what: What,
    times: usize,
    when: When,
    is_postgres: bool,
}
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum What {
    Connection,
    Once,
    Statement,
    Savepoint,
}
/// True if the last future was completed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Last {
    is_done: bool,
}

#[verb]
async fn opened(_event: Open) -> Result {
    Ok(())
}

#[verb]
async fn did(ctx: &mut Ctx<'_>, record: &mut Last, event: Drop) -> Result {
    let Drop { what, times, when, is_postgres } = event;
    let text = "insert into ledger values (1)";
    macro_rules! of_connection {
        ($conn:expr) => {
            match what {
                What::Connection => poll_then_drop(times, when, async { $conn.await.map(drop) }).await.is_some(),
                What::Statement => {
                    let conn = $conn.await?;
                    poll_then_drop(times, when, sqlx::query(text).execute(&mut *conn)).await.is_some()
                }
                What::Savepoint => {
                    let conn = $conn.await?;
                    poll_then_drop(times, when, async { conn.begin().await.map(drop) }).await.is_some()
                }
                What::Once => unreachable!("it needs no connection"),
            }
        };
    }
    record.is_done = match what {
        What::Once => {
            let done = poll_then_drop(times, when, ctx.once("effect", async { Ok::<_, Failure>(7) })).await;
            let value = ctx.once("effect", async { Ok::<_, Failure>(8) }).await?;
            assert!(done.as_ref().is_none_or(|done| done.as_ref().is_ok_and(|done| *done == value)), "what is kept stays");
            done.is_some()
        }
        _ if is_postgres => of_connection!(ctx.postgres()),
        _ => of_connection!(ctx.sqlite()),
    };
    if what == What::Connection {
        let done = if is_postgres {
            sqlx::query(text).execute(ctx.postgres().await?).await.map(drop)
        } else {
            sqlx::query(text).execute(ctx.sqlite().await?).await.map(drop)
        };
        done?;
    }
    Ok(())
}

fsm! {
    machine Dropper = "dropper" {
        keeps Last;
        start opened;
        any(opened, did) -> did;
    }
}

fn droppers() -> TestBedBuilder {
    TestBed::builder().only::<Dropper>().only::<SqlRunner>()
}

/// The engine takes an event and carries out its call.
async fn goes_on(bed: &TestBed, droppers: &Handle<Dropper>, key: &str) {
    droppers.send(key, Open).await.unwrap();
    bed.run_until_idle().await;
    assert_eq!(droppers.get(key).await.unwrap().unwrap().version, 1, "`{key}`");
}

/// A send in the caller's own transaction is dropped, and the caller continues and commits.
macro_rules! dropped_send_in {
    ($bed:expr, $connection:ty, $begin:expr) => {{
        let bed = &$bed;
        bed.yield_at_statements();
        let droppers = bed.machine::<Dropper>();
        let mut mine = <$connection>::connect(bed.url()).await.unwrap();
        sqlx::raw_sql("create table orders (number text not null)").execute(&mut mine).await.unwrap();
        goes_on(bed, &droppers, "busy").await;
        droppers.pause("busy").await.unwrap();
        let next = || Drop { what: What::Once, times: 99, when: When::ItWaits, is_postgres: false };
        droppers.send("busy", next()).await.unwrap();
        for when in BOTH {
            for times in 0.. {
                let key = format!("{when:?}-{times}");
                let mut tx = mine.begin_with($begin).await.unwrap();
                sqlx::query("insert into orders values ($1)").bind(&key).execute(&mut *tx).await.unwrap();
                let new = poll_then_drop(times, when, droppers.send_in(&mut tx, &key, Open)).await;
                let waits = poll_then_drop(times, when, droppers.send_in(&mut tx, "busy", next()).dedup(&key)).await;
                sqlx::query("insert into orders values ($1)").bind(&key).execute(&mut *tx).await.unwrap();
                tx.commit().await.unwrap();

                let orders: i64 =
                    sqlx::query_scalar("select count(*) from orders where number = $1").bind(&key).fetch_one(&mut mine).await.unwrap();
                assert_eq!(orders, 2, "what the caller did beside it is committed");
                assert_invariants_hold(bed).await;
                match droppers.get(&key).await.unwrap() {
                    None => assert!(new.is_none(), "it was acknowledged"),
                    Some(_) => bed.run_until_idle().await,
                }
                if droppers.get(&key).await.unwrap().is_none() {
                    droppers.send(&key, Open).await.unwrap();
                    bed.run_until_idle().await;
                }
                assert_eq!(droppers.get(&key).await.unwrap().unwrap().version, 1);
                let again = droppers.send("busy", next()).dedup(&key).await.unwrap();
                assert!(waits.is_none() || again.outcome == SendOutcome::Duplicate, "it was acknowledged");
                if new.is_some_and(|sent| sent.is_ok()) && waits.is_some_and(|sent| sent.is_ok()) {
                    assert!(times > 3, "{times} polls");
                    break;
                }
            }
        }
        let waiting = droppers.get("busy").await.unwrap().unwrap().inbox_len;
        droppers.resume("busy").await.unwrap();
        bed.run_until_idle().await;
        let busy = droppers.get("busy").await.unwrap().unwrap();
        assert_eq!((busy.version, busy.inbox_len), (2 + i64::try_from(waiting).unwrap(), 0));
        assert_invariants_hold(bed).await;
    }};
}

mod a_send_in_the_callers_transaction_that_is_dropped_leaves_all_of_itself_or_nothing {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("dropped-send-in");
        dropped_send_in!(droppers().on(&folder.url("fsm.db")).await, SqliteConnection, "begin immediate");
    }

    #[tokio::test]
    async fn postgres() {
        dropped_send_in!(droppers().postgres().await, PgConnection, "begin");
    }

    #[tokio::test]
    async fn sqlite_without_a_transaction_is_an_error() {
        let folder = Folder::new("dropped-without");
        let bed = droppers().on(&folder.url("fsm.db")).await;
        let mut mine = SqliteConnection::connect(bed.url()).await.unwrap();
        let error = bed.machine::<Dropper>().send_in(&mut mine, "d", Open).await.unwrap_err().to_string();
        assert!(error.starts_with("the connection is in no transaction that sqlx knows of"), "{error}");
    }
}

/// Drops each future after 0, 1, 2 and more polls, until it completes.
macro_rules! dropped_everywhere {
    ($bed:expr, $($name:literal => |$key:ident| $future:expr;)*) => { $(
        // In a box each: without one, the stack frame of the test would have room for all of them.
        Box::pin(async {
            for when in BOTH {
                for times in (0..).step_by(stride($bed)) {
                    let key = format!("{}-{when:?}-{times}", $name);
                    goes_on($bed, &$bed.machine::<Dropper>(), &key).await;
                    let $key = key.as_str();
                    let is_done = poll_then_drop(times, when, $future).await.is_some();
                    goes_on($bed, &$bed.machine::<Dropper>(), &format!("{key}-next")).await;
                    if is_done {
                        break;
                    }
                }
            }
            assert_invariants_hold($bed).await;
        })
        .await;
    )* };
}

promise! {
    async fn a_future_of_a_handle_that_is_dropped_harms_nothing(bed in droppers()) {
        bed.yield_at_statements();
        let droppers = bed.machine::<Dropper>();
        let minute = Duration::from_secs(60);
        let paused = || Filter::default().paused(true);
        let next = || Drop { what: What::Once, times: 99, when: When::ItWaits, is_postgres: false };
        dropped_everywhere! { bed,
            "send" => |key| droppers.send(key, next());
            "send-dedup" => |key| droppers.send(key, next()).dedup("d");
            "send-later" => |key| droppers.send(key, next()).after(minute);
            "send_many" => |key| droppers.send_many((0..3).map(|_| (key.to_owned(), next()))).collect();
            "settled" => |key| droppers.settled(key).within(minute);
            "get" => |key| droppers.get(key);
            "history" => |key| droppers.history(key);
            "attempts" => |key| droppers.attempts(key);
            "list" => |_key| droppers.list(Filter::default());
            "counts" => |_key| droppers.counts();
            "watch" => |key| {
                let mut seen = droppers.watch(key);
                async move { seen.next().await }
            };
            "pause" => |key| droppers.pause(key);
            "resume" => |key| droppers.resume(key);
            "retry" => |key| droppers.retry(key);
            "skip" => |key| droppers.skip(key);
            "cancel" => |key| droppers.cancel(key, "it is over");
            "bulk" => |_key| droppers.bulk(paused()).resume();
            "run_until_idle" => |_key| bed.run_until_idle();
            "check_invariants" => |_key| bed.check_invariants();
        }
        bed.advance(2 * minute).await;
    }
}

promise! {
    async fn what_a_verb_drops_is_committed_whole_or_not_at_all(bed in droppers()) {
        run(bed, "create table ledger (entry bigint)").await;
        bed.yield_at_statements();
        let droppers = bed.machine::<Dropper>();
        for what in [What::Connection, What::Once, What::Statement, What::Savepoint] {
            for when in BOTH {
                for times in 0.. {
                    let key = format!("{what:?}-{when:?}-{times}");
                    goes_on(bed, &droppers, &key).await;
                    let before = run(bed, "select count(*) from ledger").await.unwrap();
                    droppers.send(&key, Drop { what, times, when, is_postgres: is_postgres(bed) }).await.unwrap();
                    bed.run_until_idle().await;
                    assert_invariants_hold(bed).await;
                    let instance = droppers.get(&key).await.unwrap().unwrap();
                    let written = run(bed, "select count(*) from ledger").await.unwrap() - before;
                    match instance.status {
                        Status::Running => assert_eq!(instance.version, 2),
                        // The driver may roll back the whole transaction if a savepoint is dropped half-way.
                        _ => {
                            let error = instance.error.unwrap_or_default();
                            assert!(what == What::Savepoint && error.starts_with("the verb's transaction was not committed"), "{key}: {error}");
                            assert_eq!((instance.version, written), (1, 0));
                        }
                    }
                    match what {
                        What::Connection => assert_eq!(written, 1, "{key}"),
                        What::Statement if instance.record.is_done => assert_eq!(written, 1, "{key}"),
                        What::Statement => assert!(written <= 1, "{key}"),
                        What::Once | What::Savepoint => assert_eq!(written, 0, "{key}"),
                    }
                    if instance.record.is_done {
                        break;
                    }
                }
            }
        }
    }
}

/// A start, a connect and a shutdown that are dropped half-way do not prevent other processes from working.
async fn starts_and_stops(url: &str) {
    let runtime = || Runtime::builder().database(url).only::<Dropper>().poll_interval(Duration::from_millis(20));
    for when in BOTH {
        // Each of the first steps, and some of the many later ones.
        for times in (0..).map(|n: usize| n + 7 * n.saturating_sub(3)) {
            let started = poll_then_drop(times, when, runtime().start()).await;
            let connected = poll_then_drop(times, when, Client::connect(url)).await;
            let whole = runtime().start().await.unwrap();
            let is_down = poll_then_drop(times, when, whole.shutdown()).await;
            let next = runtime().start().await.unwrap();
            let key = format!("{when:?}-{times}");
            next.machine::<Dropper>().send(&key, Open).await.unwrap();
            let settled = next.machine::<Dropper>().settled(&key).within(Duration::from_secs(20)).await.unwrap();
            assert_eq!(settled.version, 1);
            assert!(next.check_invariants().await.unwrap().is_empty());
            next.shutdown().await.unwrap();
            if started.is_some() && connected.is_some() && is_down.is_some() {
                break;
            }
        }
    }
}

mod a_start_and_a_shutdown_that_are_dropped_keep_nobody_from_work {
    use super::*;

    #[tokio::test]
    async fn sqlite() {
        let folder = Folder::new("dropped-start");
        starts_and_stops(&folder.url("fsm.db")).await;
    }

    #[tokio::test]
    async fn postgres() {
        let bed = droppers().postgres().await;
        starts_and_stops(bed.url()).await;
    }
}

//! The database refuses, hangs, or is away for a while: the work continues afterwards by itself, and a success is stored as a success.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fsm::prelude::*;
use fsm::testing::TestBed;
use fsm::testing::cluster::{self, Cluster, ClusterError};
use fsm::{Builder, Error, ErrorKind, Handle, UnreportedAttempt};
use fsm_runtime::admin::{Admin, Opening};
use futures_util::future::join_all;
#[cfg(feature = "postgres")]
use sqlx::{Connection, PgConnection};

use crate::durable::{Load, Ship, ShipState, Stall, once, stalling};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{Folder, assert_invariants_hold};

/// A time limit that is long enough on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The time by which a limit in wall time may be exceeded on such a machine.
const SLACK: Duration = Duration::from_secs(5);

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn states(ships: &Handle<Ship>, key: &str) -> Vec<AttemptState> {
    ships.attempts(key).await.unwrap().iter().map(|attempt| attempt.state).collect()
}

fn runtime(url: &str, stall: &Arc<Stall>) -> Builder {
    let builder = Runtime::builder().database(url).only::<Ship>().data(Arc::clone(stall));
    builder.poll_interval(Duration::from_millis(20)).shutdown_timeout(Duration::from_secs(5))
}

/// Starts a server for this test. Returns `None` without an installed PostgreSQL, which is a failure in CI.
pub(crate) fn own_cluster() -> Option<Cluster> {
    match cluster::start_own() {
        Ok(cluster) => Some(cluster),
        Err(error @ ClusterError::NotInstalled) => {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The database answers each report with three errors in a row.
mod a_success_is_stored_as_a_success_whatever_the_database_answers_first {
    use super::*;

    async fn check(bed: &TestBed, stall: &Stall, codes: &[&str]) {
        let ships = bed.machine::<Ship>();
        for (n, code) in codes.iter().enumerate() {
            let key = format!("s-{n}");
            stall.again();
            ships.send(&key, Load).await.unwrap();
            stall.entered.notified().await;
            bed.fail_statements(3, code);
            stall.go_on();
            bed.run_until_idle().await;
            assert_eq!(bed.failures_left(), 0, "{code}");
            assert_eq!(states(&ships, &key).await, [AttemptState::Success], "{code}");
        }
        assert_invariants_hold(bed).await;
    }

    /// PERM, BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL, CORRUPT, ERROR, TOOBIG, a check and a trigger.
    const SQLITE: [&str; 14] = ["3", "5", "6", "7", "8", "10", "13", "14", "15", "11", "1", "18", "275", "1811"];

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        let stall = once();
        check(&stalling(&stall).sqlite().await, &stall, &SQLITE).await;
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn file() {
        let (stall, folder) = (once(), Folder::new("hostile-answers"));
        check(&stalling(&stall).on(&folder.url("fsm.db")).await, &stall, &SQLITE).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        let codes = [
            "25006", "57014", "57P01", "25P03", "25P04", "25P02", "53100", "53200", "53300", "58030", "58P01", "XX000", "28P01", "08006",
            "40001", "55P03", "22021", "23514", "42501", "P0001", "0A000",
        ];
        let stall = once();
        check(&stalling(&stall).postgres().await, &stall, &codes).await;
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_verb_that_ends_while_the_server_is_read_only_has_succeeded_once_it_is_writable() {
    let bed = TestBed::builder().only::<SqlRunner>().postgres().await;
    let stall = once();
    let runtime = runtime(bed.url(), &stall).start().await.unwrap();
    let ships = runtime.machine::<Ship>();
    ships.send("s-1", Load).await.unwrap();
    stall.entered.notified().await;

    let mut operator = PgConnection::connect(bed.url()).await.unwrap();
    set_read_only(&mut operator, "on").await;
    stall.go_on();
    // The first attempts may meet connections that were terminated.
    let is_read_only = |unreported: &UnreportedAttempt| unreported.tries > 2 && unreported.error.contains("accepts no writes now");
    until("the report has failed again and again", async || runtime.unreported().first().is_some_and(is_read_only)).await;
    let unreported = runtime.unreported().remove(0);
    assert_eq!((unreported.key.as_str(), unreported.verb.as_str(), unreported.attempt), ("s-1", "loading", 1));
    set_read_only(&mut operator, "off").await;

    let ship = ships.settled("s-1").within(LIMIT).await.unwrap();
    assert_eq!((ship.state, ship.version), (Some(ShipState::Loading), 1));
    assert_eq!(states(&ships, "s-1").await, [AttemptState::Success]);
    until("it is reported", async || runtime.unreported().is_empty()).await;
    runtime.shutdown().await.unwrap();
}

/// Sets read-only mode for all connections but this one.
#[cfg(feature = "postgres")]
async fn set_read_only(operator: &mut PgConnection, how: &str) {
    let own = "set default_transaction_read_only = off";
    let name: String = sqlx::query_scalar("select current_database()").fetch_one(&mut *operator).await.unwrap();
    let all = format!("alter database \"{name}\" set default_transaction_read_only = {how}");
    let others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    for statement in [own, &all, others] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned())).execute(&mut *operator).await.unwrap();
    }
}

/// A trigger of the application refuses to close the attempts of one instance.
mod a_report_that_the_database_does_not_accept_is_listed_and_stored_once_it_does {
    use super::*;

    async fn check(bed: &TestBed) {
        let stall = Arc::new(Stall::default());
        let refuses = if is_postgres(bed) {
            let raises = "if (select key from fsm_instances where instance_id = new.instance_id) = 's-1' then raise 'not this one'; end if";
            run(bed, format!("create function refuses() returns trigger language plpgsql as $$ begin {raises}; return new; end $$")).await;
            "create trigger refuses before insert on fsm_async_calls for each row when (new.state = 'success') execute function refuses()"
        } else {
            "create trigger refuses before insert on fsm_async_calls when new.state = 'success' \
             and (select key from fsm_instances where instance_id = new.instance_id) = 's-1' begin select raise(abort, 'not this one'); end"
        };
        run(bed, refuses).await;
        let runtime = runtime(bed.url(), &stall).lease(Duration::from_secs(2)).start().await.unwrap();
        let ships = runtime.machine::<Ship>();
        let sends = ["s-0", "s-1", "s-2", "s-3"].map(|key| ships.send(key, Load).into_future());
        join_all(sends).await.into_iter().for_each(|sent| assert!(sent.is_ok(), "{sent:?}"));
        for key in ["s-0", "s-2", "s-3"] {
            ships.settled(key).within(LIMIT).await.unwrap();
        }
        until("it is listed", async || runtime.unreported().first().is_some_and(|unreported| unreported.tries > 2)).await;
        let unreported = runtime.unreported();
        assert_eq!(unreported.iter().map(|unreported| unreported.key.as_str()).collect::<Vec<_>>(), ["s-1"]);
        assert!(unreported[0].error.contains("not this one"), "{}", unreported[0].error);
        let inside = findings(Opening::inside(&runtime)).await;
        assert!(inside.len() == 1 && inside[0].starts_with("attempt 1 of `loading` of `ship` `s-1` has ended"), "{inside:?}");
        let says = "1 attempts have ended in process";
        until("another process is told", async || {
            findings(Opening::to_read(bed.url())).await.first().is_some_and(|told| told.starts_with(says))
        })
        .await;

        run(bed, if is_postgres(bed) { "drop trigger refuses on fsm_async_calls" } else { "drop trigger refuses" }).await;
        ships.settled("s-1").within(LIMIT).await.unwrap();
        assert_eq!(states(&ships, "s-1").await, [AttemptState::Success]);
        until("nothing is left to tell", async || findings(Opening::to_read(bed.url())).await.is_empty()).await;
        runtime.shutdown().await.unwrap();
    }

    /// Returns the doctor's findings about reports that the database does not accept.
    async fn findings(opening: Opening) -> Vec<String> {
        let admin = Admin::open(opening).await.unwrap();
        let all = admin.checkup().await.unwrap();
        all.into_iter().filter(|finding| finding.about == "unreported").map(|finding| finding.says).collect()
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn file() {
        let folder = Folder::new("hostile-trigger");
        check(&TestBed::builder().only::<SqlRunner>().on(&folder.url("fsm.db")).await).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        check(&TestBed::builder().only::<SqlRunner>().postgres().await).await;
    }
}

/// The trigger raises an error that does not show which request caused it.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn an_error_of_unknown_cause_that_one_request_brings_about_delays_no_other() {
    let bed = stalling(&Arc::default()).only::<SqlRunner>().with(|builder| builder.patience(Duration::from_secs(2))).postgres().await;
    let raises = "if new.key = 'bad' then raise 'cache lookup failed' using errcode = 'XX000'; end if";
    run(&bed, format!("create function broken() returns trigger language plpgsql as $$ begin {raises}; return new; end $$")).await;
    run(&bed, "create trigger broken before insert on fsm_instances for each row execute function broken()").await;
    let ships = bed.machine::<Ship>();
    // They are sent together, so that they are in one batch.
    let keys: Vec<_> = (0..20).map(|n| if n == 7 { "bad".to_owned() } else { format!("good-{n}") }).collect();
    let sent = join_all(keys.iter().map(|key| ships.send(key, Load).into_future())).await;
    for (key, sent) in keys.iter().zip(sent) {
        match key.as_str() {
            "bad" => assert_eq!(sent.unwrap_err().kind(), ErrorKind::Database),
            _ => assert!(sent.is_ok(), "{key}: {sent:?}"),
        }
    }
    bed.run_until_idle().await;
    assert_invariants_hold(&bed).await;
}

/// Without the patience, a caller would wait for 30 s, the limit of one operation, and a shutdown would never return.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn while_the_server_hangs_callers_are_told_within_their_patience_and_a_shutdown_returns() {
    let Some(cluster) = own_cluster() else { return };
    let url = cluster.url();
    let (stall, lease) = (once(), Duration::from_secs(2));
    let patience = Duration::from_secs(1);
    let builder = || runtime(&url, &stall).patience(patience).lease(lease).shutdown_timeout(Duration::from_millis(200));
    let hanging = builder().start().await.unwrap();
    let client = Client::builder().patience(patience).connect(&url).await.unwrap();
    let (ships, of_client) = (hanging.machine::<Ship>(), client.machine::<Ship>());
    ships.send("s-1", Load).await.unwrap();
    stall.entered.notified().await;

    let frozen = cluster.freeze().unwrap();
    let begin = Instant::now();
    let sends = join_all([ships.send("s-2", Load).into_future(), of_client.send("s-3", Load).into_future()]).await;
    let (taken, cancel) = (begin.elapsed(), of_client.cancel("none", "it hangs").await);
    for told in sends.into_iter().map(|sent| sent.map(drop)).chain([cancel]) {
        assert_eq!(told.unwrap_err().kind(), ErrorKind::Database);
    }
    assert!(taken < patience + SLACK, "callers were told after {taken:?}");
    let begin = Instant::now();
    let many = of_client.send_many((0..50).map(|n| (format!("m-{n}"), Load))).collect().await.unwrap();
    assert!(many.len() == 50 && many.iter().all(|sent| sent.as_ref().is_err_and(Error::is_database)));
    assert!(begin.elapsed() < patience + SLACK, "all of many were told after {:?}", begin.elapsed());

    let begin = Instant::now();
    let left = hanging.shutdown().await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_millis(2200) + SLACK, "the shutdown took {:?}", begin.elapsed());
    assert_eq!(left.kind(), ErrorKind::Stopping);
    assert!(left.to_string().contains("0 attempts that ended are not reported, and 1 that ran are not released"), "{left}");

    let begin = Instant::now();
    let refused = builder().start().await.err().unwrap();
    assert!(begin.elapsed() < patience + SLACK, "the start took {:?}", begin.elapsed());
    assert_eq!(refused.kind(), ErrorKind::Database);
    drop(frozen);

    // Another process takes over the rest once the lease has ended.
    let next = builder().shutdown_timeout(Duration::from_secs(20)).start().await.unwrap();
    let ships = next.machine::<Ship>();
    until("it is found lost", async || states(&ships, "s-1").await.first() == Some(&AttemptState::Lost)).await;
    next.shutdown().await.unwrap();
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_shutdown_counts_the_outcomes_that_it_could_not_report() {
    let Some(mut cluster) = own_cluster() else { return };
    let stall = once();
    let runtime = runtime(&cluster.url(), &stall).shutdown_timeout(Duration::from_millis(200)).start().await.unwrap();
    runtime.machine::<Ship>().send("s-1", Load).await.unwrap();
    stall.entered.notified().await;
    cluster.stop().unwrap();
    stall.go_on();
    until("the report has failed", async || !runtime.unreported().is_empty()).await;
    let left = runtime.shutdown().await.unwrap_err();
    assert!(left.to_string().contains("1 attempts that ended are not reported, and 0 that ran are not released"), "{left}");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_database_that_comes_up_within_the_patience_is_used_by_a_runtime_that_starts() {
    let Some(mut cluster) = own_cluster() else { return };
    let url = cluster.url();
    cluster.stop().unwrap();
    let starting = tokio::spawn(runtime(&url, &Arc::default()).patience(LIMIT).start());
    let connecting = tokio::spawn(async move { Client::builder().patience(LIMIT).connect(url).await });
    tokio::task::spawn_blocking(move || {
        cluster.start().unwrap();
        cluster
    })
    .await
    .map(|cluster| async move {
        let runtime = starting.await.unwrap().unwrap();
        let client = connecting.await.unwrap().unwrap();
        client.machine::<Ship>().send("s-1", Load).await.unwrap();
        runtime.machine::<Ship>().settled("s-1").within(LIMIT).await.unwrap();
        runtime.shutdown().await.unwrap();
        drop(cluster);
    })
    .unwrap()
    .await;
}

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[tokio::test]
async fn a_start_gives_up_when_its_patience_ends_and_at_once_where_waiting_does_not_help() {
    let patience = Duration::from_millis(300);
    let begin = Instant::now();
    let away = Client::builder().patience(patience).connect("postgres://me@127.0.0.1:1/none").await.err().unwrap();
    assert!(away.is_database() && begin.elapsed() >= patience / 2, "{away} after {:?}", begin.elapsed());
    let away = runtime("postgres://me@127.0.0.1:1/none", &Arc::default()).patience(patience).start().await.err().unwrap();
    assert!(away.is_database() && begin.elapsed() < 2 * patience + SLACK, "{away} after {:?}", begin.elapsed());

    let folder = Folder::new("hostile-start");
    std::fs::write(folder.path().join("no.db"), "this is no database, and it is longer than the header of one".repeat(20)).unwrap();
    let begin = Instant::now();
    let never = Client::builder().patience(LIMIT).connect(folder.url("no.db")).await.err().unwrap();
    assert!(never.is_database() && begin.elapsed() < SLACK, "{never} after {:?}", begin.elapsed());
}

/// Dropping a runtime answers the waiting callers.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_send_that_waits_when_its_runtime_is_dropped_is_told() {
    let Some(cluster) = own_cluster() else { return };
    let runtime = runtime(&cluster.url(), &Arc::default()).patience(LIMIT).start().await.unwrap();
    let ships = runtime.machine::<Ship>();
    let _frozen = cluster.freeze().unwrap();
    let sends: Vec<_> = (0..5).map(|n| tokio::spawn(ships.send(format!("s-{n}"), Load).into_future())).collect();
    tokio::task::yield_now().await;
    drop(runtime);
    for sent in join_all(sends).await {
        assert_eq!(sent.unwrap().unwrap_err().kind(), ErrorKind::Stopping);
    }
}

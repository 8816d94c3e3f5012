//! A row that cannot be written or that is locked does not delay any other instance.

use std::future::IntoFuture;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::TestBed;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use crate::durable::{Load, Ship, Stall, stalled, stalling};
use crate::payment::{Payment, checkout, failing};
use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{assert_invariants_hold, promise};

/// Longer than the lease of any test bed.
const A_MINUTE: Duration = Duration::from_secs(60);
const ORPHANS: u32 = 5;

/// Closes the connection and waits until its lock is released.
async fn release_lock(mut hung: PgConnection) {
    sqlx::raw_sql("rollback").execute(&mut hung).await.unwrap();
    hung.close().await.unwrap();
}

/// Starts several ships whose process dies while their verbs run.
async fn orphans(bed: &TestBed, stall: &Stall) {
    let ships = bed.machine::<Ship>();
    for n in 0..ORPHANS {
        ships.send(format!("s-{n}"), Load).await.unwrap();
        stall.entered.notified().await;
    }
    bed.restart().await;
}

/// Returns the keys of the ships that are not loaded yet.
async fn keys_not_loaded(bed: &TestBed) -> Vec<String> {
    let ships = bed.machine::<Ship>().list(Filter::default()).await.unwrap().items;
    ships.into_iter().filter(|ship| ship.version == 0).map(|ship| ship.key).collect()
}

/// Known bug 9: writing the row in the middle raises an error.
async fn break_a_row(bed: &TestBed) {
    if is_postgres(bed) {
        let raises =
            "if (select key from fsm_instances where instance_id = new.instance_id) = 's-2' then raise 'this row is broken'; end if";
        run(bed, format!("create function broken() returns trigger language plpgsql as $$ begin {raises}; return new; end $$")).await;
        run(bed, "create trigger broken before insert on fsm_async_calls for each row execute function broken()").await;
    } else {
        let is_it = "(select key from fsm_instances where instance_id = new.instance_id) = 's-2'";
        let raises = "select raise(abort, 'this row is broken')";
        run(bed, format!("create trigger broken before insert on fsm_async_calls when {is_it} begin {raises}; end")).await;
    }
}

/// Removes the trigger of `break_a_row`.
async fn repair_the_row(bed: &TestBed) {
    run(bed, if is_postgres(bed) { "drop trigger broken on fsm_async_calls" } else { "drop trigger broken" }).await;
}

mod an_error_in_the_row_in_the_middle_keeps_no_other_from_being_recovered {
    use super::*;

    async fn check(bed: &TestBed, stall: &Stall) {
        orphans(bed, stall).await;
        break_a_row(bed).await;
        bed.advance(A_MINUTE).await;
        assert_eq!(keys_not_loaded(bed).await, ["s-2"], "the others are recovered");
        repair_the_row(bed).await;
        bed.advance(A_MINUTE).await;
        assert!(keys_not_loaded(bed).await.is_empty(), "the last one is recovered when its row can be written");
        assert_invariants_hold(bed).await;
    }

    #[tokio::test]
    async fn sqlite() {
        let stall = stalled(ORPHANS);
        check(&stalling(&stall).only::<SqlRunner>().sqlite().await, &stall).await;
    }

    #[tokio::test]
    async fn postgres() {
        let stall = stalled(ORPHANS);
        check(&stalling(&stall).only::<SqlRunner>().postgres().await, &stall).await;
    }
}

/// Locks one instance in a transaction of another client, like a process that hangs there.
async fn lock_from_another_client(bed: &TestBed, key: &str) -> PgConnection {
    let mut other = PgConnection::connect(bed.url()).await.unwrap();
    sqlx::raw_sql("begin").execute(&mut other).await.unwrap();
    let lock = "select 1 from fsm_instances where key = $1 for update";
    assert_eq!(sqlx::query(lock).bind(key).fetch_all(&mut other).await.unwrap().len(), 1);
    other
}

#[tokio::test]
async fn an_instance_whose_lock_is_held_keeps_no_other_of_its_batch_waiting() {
    let bed = failing(0).postgres().await;
    let payments = bed.machine::<Payment>();
    payments.send("held", checkout()).await.unwrap();
    bed.run_until_idle().await;
    let hung = lock_from_another_client(&bed, "held").await;
    // They are requested together, so that they are in one batch.
    let held = tokio::spawn(payments.cancel("held", "it is held").into_future());
    let others = (0..20).map(|n| payments.send(format!("free-{n}"), checkout()).into_future());
    for sent in join_all(others).await {
        sent.unwrap();
    }
    assert!(!held.is_finished(), "the locked instance must wait");
    release_lock(hung).await;
    held.await.unwrap().unwrap();
    assert_eq!(payments.get("held").await.unwrap().unwrap().status, Status::Cancelled);
    assert_invariants_hold(&bed).await;
}

#[tokio::test]
async fn an_orphan_whose_instance_is_locked_keeps_no_other_from_being_recovered() {
    let stall = stalled(ORPHANS);
    let bed = stalling(&stall).postgres().await;
    orphans(&bed, &stall).await;
    let hung = lock_from_another_client(&bed, "s-0").await;
    bed.advance(A_MINUTE).await;
    assert_eq!(keys_not_loaded(&bed).await, ["s-0"], "the others are recovered");
    release_lock(hung).await;
    bed.advance(A_MINUTE).await;
    assert!(keys_not_loaded(&bed).await.is_empty());
    assert_invariants_hold(&bed).await;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Park;

#[verb]
async fn parked(_event: Park) -> Result {
    Ok(())
}

macro_rules! lots {
    ($($name:ident = $text:literal),*) => { $( fsm! { machine $name = $text { start parked; end parked; } } )* };
}

lots!(Alley = "alley", Bay = "bay", Court = "court", Deck = "deck", Embankment = "embankment", Forecourt = "forecourt");

/// Known bug 14: all processes register their machines in the same order, so that they do not block each other.
#[tokio::test]
async fn processes_that_start_at_once_do_not_wait_for_each_other() {
    for _ in 0..3 {
        let bed = TestBed::builder().only::<SqlRunner>().postgres().await;
        let starts = (0..8).map(|_| {
            let builder = Runtime::builder().database(bed.url()).only::<Alley>().only::<Bay>().only::<Court>();
            tokio::spawn(builder.only::<Deck>().only::<Embankment>().only::<Forecourt>().start())
        });
        for started in join_all(starts).await {
            started.unwrap().unwrap().shutdown().await.unwrap();
        }
        let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
        assert_eq!(run(&bed, deadlocks).await, Some(0));
    }
}

promise! {
    /// Known bug 30: the application's own migrations are independent of the engine's.
    async fn an_applications_own_migrations_stay_as_they_are(bed in TestBed::builder().only::<SqlRunner>()) {
        run(bed, "create table _sqlx_migrations (version bigint primary key, description text not null)").await;
        run(bed, "insert into _sqlx_migrations values (1, 'the application''s own'), (20240101000000, 'and another')").await;
        let beside = Runtime::builder().database(bed.url()).only::<SqlRunner>();
        if is_postgres(bed) {
            // Another process starts and runs the engine's migrations.
            beside.start().await.unwrap().shutdown().await.unwrap();
        }
        bed.restart().await;
        let kept = "select count(*) from _sqlx_migrations where description in ('the application''s own', 'and another')";
        let all = Some(2 * i64::from(bed.partitions()));
        assert_eq!(run(bed, kept).await, all);
        assert_eq!(run(bed, "select count(*) from _sqlx_migrations").await, all, "the engine's migrations are not among them");
        assert!(run(bed, "select count(*) from fsm_migrations").await > Some(0), "the engine's migrations have a table of their own");
    }
}

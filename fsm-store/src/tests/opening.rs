//! Opening, migrations, failed transactions, and the texts of errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fsm_core::changes::{Changes, TimerChange};
use sqlx::Connection;
use tokio::sync::Barrier;

use super::samples::{at, beginning, done, timer, written};
use crate::conn::Conn;
use crate::error::{Class, SchemaError, StoreError};
use crate::open::Store;
use crate::settings::{Settings, Synchronous};
use crate::testing::{EmptyDatabase, on_each};
use crate::values::values;
use crate::{migrate, sessions, sql, view, write};

async fn exists(store: &Store, key: &str) -> bool {
    view::find(&mut store.reader().await.unwrap().conn(), "payment", key).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_not_committed_leaves_nothing() {
    on_each(async |store| {
        written(&store, &[&beginning("kept", None)]).await;
        for turn in 0..3 {
            let mut tx = store.begin().await.unwrap();
            write::write(&mut tx.conn(), &[&beginning("lost", None)]).await.unwrap();
            if turn == 0 { tx.rollback().await.unwrap() } else { drop(tx) }
        }
        assert!(exists(&store, "kept").await);
        assert!(!exists(&store, "lost").await);
        assert_eq!(written(&store, &[&beginning("later", None)]).await, [done(Some("later"))]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_which_a_statement_failed_cannot_be_committed() {
    on_each(async |store| {
        let mut begun = beginning("a", None);
        begun.timers = vec![TimerChange::Set(timer(&begun.instance, None))];
        let twice = Changes { timers: begun.timers.clone(), ..beginning("b", None) };
        let mut tx = store.begin().await.unwrap();
        let error = match write::write(&mut tx.conn(), &[&begun, &twice]).await {
            // SQLite gets the queued statements only with the next query.
            Ok(_) => view::find(&mut tx.conn(), "payment", "a").await.map(drop),
            Err(error) => Err(error),
        };
        assert!(error.is_err_and(|error| error.class() == Class::Contended), "the same row twice");
        assert!(matches!(write::write(&mut tx.conn(), &[&begun]).await, Err(StoreError::Aborted)));
        assert!(matches!(tx.commit().await, Err(StoreError::Aborted)));
        assert!(!exists(&store, "a").await);
        assert_eq!(written(&store, &[&begun]).await, [done(Some("a"))]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_use_the_transaction_and_cannot_commit_or_hide_a_failure() {
    on_each(async |store| {
        let mut tx = store.begin_for_user().await.unwrap();
        write::write(&mut tx.conn(), &[&beginning("a", None)]).await.unwrap();
        match tx.conn() {
            Conn::Sqlite(_) => panic!("a user's own statements run on a connection of the driver"),
            Conn::UserSqlite(guarded) => {
                let conn = guarded.into_inner();
                let mut own = conn.begin().await.unwrap();
                sqlx::query("create table theirs (n integer)").execute(&mut *own).await.unwrap();
                own.commit().await.unwrap();
                drop(conn.begin().await.unwrap());
            }
            Conn::Postgres(guarded) => {
                let conn = guarded.into_inner();
                let mut own = conn.begin().await.unwrap();
                sqlx::query("create table theirs (n integer)").execute(&mut *own).await.unwrap();
                own.commit().await.unwrap();
                drop(conn.begin().await.unwrap());
            }
        }
        // In memory, a transaction that writes blocks readers.
        assert!(format!("{store:?}").contains("in memory") || !exists(&store, "a").await);
        write::write(&mut tx.conn(), &[&beginning("b", None)]).await.unwrap();
        tx.commit().await.unwrap();
        assert!(exists(&store, "a").await && exists(&store, "b").await);

        let mut tx = store.begin_for_user().await.unwrap();
        write::write(&mut tx.conn(), &[&beginning("c", None)]).await.unwrap();
        if let Conn::Postgres(guarded) = tx.conn() {
            sqlx::query("select 1 / 0").execute(guarded.into_inner()).await.unwrap_err();
            assert!(matches!(tx.commit().await, Err(StoreError::Aborted)));
            assert!(!exists(&store, "c").await);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_racers_migrate_once() {
    for fresh in [EmptyDatabase::file(), EmptyDatabase::postgres().await] {
        let racers: Vec<_> = (0..20)
            .map(|_| {
                let url = fresh.url();
                tokio::spawn(async move {
                    let store = Store::open(Settings::new(url)).await.unwrap();
                    migrate::up(&store, at(5)).await.unwrap();
                    migrate::up(&store, at(6)).await.unwrap();
                    store.close().await;
                })
            })
            .collect();
        for racer in racers {
            racer.await.unwrap();
        }
        let store = fresh.open().await;
        assert_eq!(store.reader().await.unwrap().conn().rows(&sql::MIGRATIONS, &[]).await.unwrap().len(), migrate::newest() as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_schema_is_refused_and_left_alone() {
    on_each(async |store| {
        let mut tx = store.begin().await.unwrap();
        tx.conn().rows(&sql::MIGRATED, &values![9_i64, "later", 1_i64, 1_i64]).await.unwrap();
        tx.commit().await.unwrap();
        let error = migrate::up(&store, at(1)).await.unwrap_err();
        assert!(matches!(error, StoreError::Schema(SchemaError::Newer { found: 9, known }) if known == migrate::newest()), "{error}");
        assert!(error.to_string().contains("schema 9") && error.to_string().contains(&format!("up to {}", migrate::newest())));

        let mut tx = store.begin().await.unwrap();
        tx.conn().script("delete from fsm_migrations; insert into fsm_migrations values (1, 'first', 7, 1)").await.unwrap();
        tx.commit().await.unwrap();
        assert!(matches!(migrate::up(&store, at(1)).await, Err(StoreError::Schema(SchemaError::Other { version: 1 }))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_for_reading_is_not_written() {
    for fresh in [EmptyDatabase::file(), EmptyDatabase::postgres().await] {
        let store = fresh.open().await;
        written(&store, &[&beginning("a", None)]).await;
        let read_only = Store::open(Settings { read_only: true, ..Settings::new(fresh.url()) }).await.unwrap();
        assert!(exists(&read_only, "a").await);
        if store.is_postgres() {
            let settings = sql::Sql {
                sqlite: "",
                postgres: "select current_setting('statement_timeout') || ', ' || current_setting('default_transaction_read_only')",
            };
            let row = &read_only.reader().await.unwrap().conn().rows(&settings, &[]).await.unwrap()[0];
            assert_eq!(row.get::<String>(0).unwrap(), "30s, on");
        }
        let error = read_only.begin().await.err().unwrap();
        assert!(matches!(error, StoreError::ReadOnly { .. }) && !error.is_transient(), "{error}");
        if !store.is_postgres() {
            let mut reader = store.reader().await.unwrap();
            let error = reader.conn().rows(&sql::MIGRATED, &values![2_i64, "x", 1_i64, 1_i64]).await.err().unwrap();
            assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_opened_says_why_and_hides_passwords() {
    let cases = [
        ("postgres://me:s3cret@127.0.0.1:1/none", "`none` at `127.0.0.1:1` cannot be opened"),
        ("sqlite:///no/such/folder/a.db", "`/no/such/folder/a.db` cannot be opened"),
        ("mysql://me:s3cret@host/db", "`mysql://me:***@host/db` is of no known kind"),
        ("sqlite:a.db?mode=what", "is no SQLite URL"),
        ("postgres://me:s3cret@host:port/db", "has a port that is no number"),
        ("payments", "is of no known kind"),
    ];
    for (url, says) in cases {
        let error = Store::open(Settings::new(url)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("s3cret") && !format!("{error:?}").contains("s3cret"), "{text}");
    }
    let error = Store::open(Settings::new("postgres://me@127.0.0.1:1/none")).await.unwrap_err();
    assert!(error.is_transient());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_past_its_deadline_ends_and_its_connection_is_not_used_again() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let hasty = Store::open(Settings { deadline: Duration::from_millis(300), connections: 1, ..Settings::new(fresh.url()) }).await.unwrap();
    written(&store, &[&beginning("a", None)]).await;
    let targets = [fsm_core::commit::rows::Target { machine: "payment", key: "a" }];
    let mut holder = store.begin().await.unwrap();
    crate::lock::instances(&mut holder.conn(), &targets).await.unwrap();
    let mut waiter = hasty.begin().await.unwrap();
    let error = crate::lock::instances(&mut waiter.conn(), &targets).await.unwrap_err();
    assert!(matches!(error, StoreError::Deadline(_)) && error.is_transient(), "{error}");
    assert!(matches!(hasty.begin().await, Err(StoreError::Deadline(_))));
    assert!(matches!(waiter.commit().await, Err(StoreError::Aborted)));
    holder.commit().await.unwrap();
    assert_eq!(written(&hasty, &[&beginning("b", None)]).await, [done(Some("b"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarted_is_found_again() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let mut reader = store.reader().await.unwrap();
    reader.conn().script("select pg_terminate_backend(pg_backend_pid())").await.unwrap_err();
    drop(reader);
    assert_eq!(written(&store, &[&beginning("a", None)]).await, [done(Some("a"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_statement_cache_all_goes_the_same_way() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let bare = Store::open(Settings { statement_cache: false, ..Settings::new(fresh.url()) }).await.unwrap();
    assert_eq!(written(&bare, &[&beginning("a", None)]).await, [done(Some("a"))]);
    assert!(exists(&bare, "a").await && exists(&bare, "a").await && exists(&store, "a").await);
}

/// The lock timeout of a transaction, as PostgreSQL shows it.
async fn patience(conn: &mut Conn<'_>) -> String {
    let shown = conn.rows(&sql::Sql { sqlite: "", postgres: "select current_setting('lock_timeout')" }, &[]).await.unwrap();
    shown[0].get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_waited_for_two_seconds_but_by_migrations_and_a_users_own_statements() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(patience(&mut tx.conn()).await, "2s");
    tx.conn().wait_for_locks().await.unwrap();
    assert_eq!(patience(&mut tx.conn()).await, "0");
    let mut user_sqlite = store.begin_for_user().await.unwrap();
    assert_eq!(patience(&mut user_sqlite.conn()).await, "0");
    assert_eq!(patience(&mut store.begin().await.unwrap().conn()).await, "2s");
}

/// Without a limit, the server continues a statement whose client has gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_ends_an_examination_that_takes_too_long() {
    let fresh = EmptyDatabase::postgres().await;
    fresh.open().await;
    let limit = sql::Sql { sqlite: "", postgres: "select current_setting('statement_timeout')" };
    for (deadline, expected) in [(Duration::from_secs(1), "10min"), (Duration::from_secs(1200), "20min")] {
        let store = Store::open(Settings { deadline, ..Settings::new(fresh.url()) }).await.unwrap();
        let mut examination = store.examination().await.unwrap();
        let rows = examination.conn().rows(&limit, &[]).await.unwrap();
        assert_eq!(rows[0].get::<String>(0).unwrap(), expected);
        examination.rollback().await.unwrap();
        let rows = store.reader().await.unwrap().conn().rows(&limit, &[]).await.unwrap();
        assert_eq!(rows[0].get::<String>(0).unwrap(), "0", "the connection is as it was");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_reach_the_database() {
    let fresh = EmptyDatabase::file();
    for (synchronous, number) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let store = Store::open(Settings { synchronous, ..Settings::new(fresh.url()) }).await.unwrap();
        let mut tx = store.begin().await.unwrap();
        let pragmas = sql::Sql {
            sqlite: "select s.synchronous, j.journal_mode, f.foreign_keys from pragma_synchronous s, pragma_journal_mode j, pragma_foreign_keys f",
            postgres: "",
        };
        let rows = tx.conn().rows(&pragmas, &[]).await.unwrap();
        assert_eq!(
            (rows[0].get::<i64>(0).unwrap(), rows[0].get::<String>(1).unwrap(), rows[0].get::<i64>(2).unwrap()),
            (number, "wal".into(), 1)
        );
    }
    let postgres = EmptyDatabase::postgres().await;
    let store = postgres.open().await;
    let clock = sessions::server_clock(&mut store.reader().await.unwrap().conn()).await.unwrap().unwrap();
    assert!(clock.up_since < clock.now && clock.now > at(1_700_000_000_000_000));
    assert_eq!(sessions::server_clock(&mut fresh.open().await.reader().await.unwrap().conn()).await.unwrap(), None);
    store.close().await;
    assert!(matches!(store.begin().await, Err(StoreError::Closed)));
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_write_one_file() {
    let fresh = EmptyDatabase::file();
    fresh.open().await;
    let writers: Vec<_> = (0..4)
        .map(|process| {
            let url = fresh.url();
            tokio::spawn(async move {
                let store = Store::open(Settings { synchronous: Synchronous::Normal, ..Settings::new(url) }).await.unwrap();
                let tasks: Vec<_> = (0..8)
                    .map(|task| {
                        let store = store.clone();
                        tokio::spawn(async move {
                            for n in 0..20 {
                                let key = format!("{process}-{task}-{n}");
                                assert_eq!(written(&store, &[&beginning(&key, None)]).await, [done(Some(&key))]);
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let store = fresh.open().await;
    let counts = view::counts(&mut store.reader().await.unwrap().conn(), "payment").await.unwrap();
    assert_eq!(counts[0].2, 4 * 8 * 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_commits_without_a_pause_leaves_others_their_turn() {
    let fresh = EmptyDatabase::file();
    let (greedy, modest) = (fresh.open().await, fresh.open().await);
    let is_done = Arc::new(AtomicBool::new(false));
    let (flag, begun) = (Arc::clone(&is_done), Arc::new(Barrier::new(2)));
    let begins = Arc::clone(&begun);
    let in_flight = tokio::spawn(async move {
        let mut commits = 0;
        while commits < MOST && !flag.load(Ordering::Relaxed) {
            let mut tx = greedy.begin().await.unwrap();
            for _ in 0..200 {
                view::counts(&mut tx.conn(), "payment").await.unwrap();
            }
            tx.commit().await.unwrap();
            commits += 1;
            if commits == 1 {
                begins.wait().await;
            }
        }
        commits
    });
    begun.wait().await;
    for n in 0..30 {
        written(&modest, &[&beginning(&format!("modest-{n}"), None)]).await;
    }
    is_done.store(true, Ordering::Relaxed);
    let commits = in_flight.await.unwrap();
    assert!(commits < MOST, "the other had not had thirty turns after {commits} commits");
}

/// Far more commits than the other process needs for its thirty.
const MOST: usize = 10_000;

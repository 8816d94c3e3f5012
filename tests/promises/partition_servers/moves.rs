//! A partition moves to another server while programs work on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fsm::Client;
use fsm_runtime::admin::partition_move::{self, Step};

use super::*;

/// The partition that moves, from the second server to the first one and back.
pub(super) const MOVED: u32 = 1;

/// Takes these steps of a move. Returns the number of rows, and the duration of the steps after which the partition cannot be used.
pub(super) async fn step(servers: &Servers, to: &str, steps: &[Step]) -> (u64, Duration) {
    let mut moving = partition_move::begin(&Opening::to_act(servers.url()), MOVED, to).await.unwrap().expect("it is elsewhere");
    let (mut rows, mut frozen) = (0, Duration::ZERO);
    for step in steps {
        let begun = Instant::now();
        rows += moving.step(*step).await.unwrap();
        if *step >= Step::Freeze {
            frozen += begun.elapsed();
        }
    }
    (rows, frozen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_moves_to_another_server_and_back_under_load_and_nothing_is_lost_or_repeated() {
    let Some(servers) = Servers::start().await else { return };
    let (first, second) = tokio::try_join!(servers.builder().start(), servers.builder().start()).unwrap();
    let client = Client::connect(servers.url()).await.unwrap();
    let keys = keys("account", 1);
    let handles = [first.machine::<Account>(), second.machine::<Account>(), client.machine::<Account>()];
    let has_ended = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = keys
        .iter()
        .zip(handles.iter().cycle())
        .map(|(from, accounts)| {
            let (accounts, from, keys, has_ended) = (accounts.clone(), from.clone(), keys.clone(), Arc::clone(&has_ended));
            tokio::spawn(async move {
                let (mut ledger, mut number) = (Ledger::default(), 0);
                while !has_ended.load(Ordering::Relaxed) {
                    ledger.add(Ledger::transfer(accounts.clone(), from.clone(), keys.clone(), number..number + 1).await);
                    number += 1;
                }
                ledger
            })
        })
        .collect();
    let moved = keys.iter().find(|key| partition_of(key, PARTITIONS) == MOVED).unwrap();
    until("the traffic flows", async || handles[0].get(moved).await.unwrap().is_some_and(|account| account.record.credits.len() >= 5))
        .await;
    for to in [servers.first.url(), servers.second.url()] {
        let (rows, frozen) = step(&servers, &to, &Step::ALL).await;
        let begun = Instant::now();
        let credits = handles[0].get(moved).await.unwrap().unwrap().record.credits.len();
        println!("{rows} rows were moved in {frozen:?}, and the new place was used {:?} later", begun.elapsed());
        until("the traffic flows again", async || handles[1].get(moved).await.unwrap().unwrap().record.credits.len() > credits).await;
    }
    has_ended.store(true, Ordering::Relaxed);
    let mut ledger = Ledger::default();
    for caller in callers {
        ledger.add(caller.await.unwrap());
    }
    assert!(ledger.doubtful.is_empty(), "a move is shorter than the patience of a send: {:?}", ledger.doubtful);
    ledger.check(&servers, &second, &keys).await;
    let listed = partitions::list(&Opening::to_read(servers.url())).await.unwrap();
    let place_numbers: Vec<_> = listed.iter().map(|one| one.place.place_number).collect();
    assert_eq!(place_numbers, [1, 3, 1, 1]);
    for one in &listed {
        let checked = partitions::check(&Opening::to_read(servers.url()), &one.place).await;
        assert!(checked.problems.is_empty(), "{:?}", checked.problems);
    }
    tokio::try_join!(first.shutdown(), second.shutdown()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_ends_after_any_step_is_continued_or_cancelled_and_meanwhile_only_its_partition_waits() {
    let Some(servers) = Servers::start().await else { return };
    let runtime = servers.builder().patience(Duration::from_millis(300)).start().await.unwrap();
    let accounts = runtime.machine::<Account>();
    let keys = keys("account", 1);
    let opening = Opening::to_act(servers.url());
    let mut ledger = Ledger::default();
    for key in &keys {
        accounts.send(key, Open).await.unwrap();
    }
    let (mut at, mut numbers) = (servers.second.url(), 0..);
    for last in 0..Step::ALL.len() {
        for is_cancelled in [true, false] {
            let to = if at == servers.first.url() { servers.second.url() } else { servers.first.url() };
            step(&servers, &to, &Step::ALL[..=last]).await;
            if Step::ALL[last] == Step::Freeze {
                // A process that copies ends in the middle.
                let mut moving = partition_move::begin(&opening, MOVED, &to).await.unwrap().unwrap();
                let _ = tokio::time::timeout(Duration::from_millis(10), moving.step(Step::Copy)).await;
            }
            let is_frozen = [Step::Freeze, Step::Copy].contains(&Step::ALL[last]);
            for (partition, key) in (0..).zip(&keys) {
                let number = numbers.next().unwrap();
                let sent = accounts.send(key, Transfer { to: keys[(partition + 1) % keys.len()].clone(), number }).await;
                let is_waiting = is_frozen && partition == MOVED as usize;
                let may_wait = is_waiting || Step::ALL[last] == Step::Switch && partition == MOVED as usize;
                match sent {
                    Ok(_) => {
                        assert!(!is_waiting, "nothing can use the partition after {:?}", Step::ALL[last]);
                        ledger.sent.entry((key.clone(), keys[(partition + 1) % keys.len()].clone())).or_default().push(number);
                    }
                    Err(error) => {
                        assert!(may_wait && error.is_database(), "{error}");
                        assert!(error.to_string().contains("is not here: it was moved, or is being moved"), "{error}");
                    }
                }
            }
            let (has_ended, is_copied) = (Step::ALL[last] == Step::Switch, Step::ALL[last] >= Step::Copy);
            if is_cancelled {
                let cancelled = partition_move::cancel(&opening, MOVED).await;
                assert_eq!(cancelled.is_err(), is_copied, "{cancelled:?}");
            }
            // Rows that are all copied may be in use, so such a move is only continued.
            let is_moved = !is_cancelled || is_copied;
            if is_moved {
                match partition_move::begin(&opening, MOVED, &to).await.unwrap() {
                    None => assert!(has_ended),
                    Some(mut moving) => {
                        let other = partition_move::begin(&opening, MOVED, &to).await.err().expect("only one process moves a partition");
                        assert!(other.to_string().contains("is being moved by another process"), "{other}");
                        for step in Step::ALL {
                            moving.step(step).await.unwrap();
                        }
                    }
                }
            }
            if is_moved {
                at = to;
            }
            let (from, to) = (&keys[MOVED as usize], &keys[0]);
            until("the partition is used again", async || {
                let sent =
                    Ledger::transfer(accounts.clone(), from.clone(), vec![to.clone()], numbers.next().map_or(0..0, |n| n..n + 1)).await;
                let is_sent = sent.doubtful.is_empty();
                ledger.add(sent);
                is_sent
            })
            .await;
        }
    }
    let listed = partitions::list(&opening).await.unwrap();
    assert_eq!((listed[1].place.url.as_ref(), &listed[1].place.moving_to), (Some(&at), &None));
    if at != servers.second.url() {
        step(&servers, &servers.second.url(), &Step::ALL).await;
    }
    // The patience of this process is shorter than the time that it may take to find the place.
    until("the partition is found", async || accounts.get(&keys[MOVED as usize]).await.is_ok()).await;
    ledger.check(&servers, &runtime, &keys).await;
    runtime.shutdown().await.unwrap();
}

/// The client remembers the second server, and its connections are open. The partition comes back to this server.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_missed_a_move_does_not_write_at_a_place_that_gets_the_partition_again() {
    let Some(servers) = Servers::start().await else { return };
    let key = &keys("account", 1)[MOVED as usize];
    let client = Client::builder().patience(Duration::from_secs(1)).connect(servers.url()).await.unwrap();
    let accounts = client.machine::<Account>();
    let credit = |number| Credit { from: "outside".into(), number };
    accounts.send(key, credit(0)).await.unwrap();
    step(&servers, &servers.first.url(), &Step::ALL).await;

    let opening = Opening::to_act(servers.url());
    let mut moving = partition_move::begin(&opening, MOVED, &servers.second.url()).await.unwrap().unwrap();
    moving.step(Step::Announce).await.unwrap();
    moving.step(Step::Prepare).await.unwrap();
    accounts.send(key, credit(1)).await.unwrap();
    for step in [Step::Freeze, Step::Copy, Step::Switch] {
        moving.step(step).await.unwrap();
    }
    moving.step(Step::Copy).await.unwrap_err();
    accounts.send(key, credit(2)).await.unwrap();
    let runtime = servers.builder().start().await.unwrap();
    let credits = runtime.machine::<Account>().settled(key).within(LIMIT).await.unwrap().record.credits;
    assert_eq!(credits.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_never_copies_over_rows_that_programs_may_have_changed() {
    let Some(servers) = Servers::start().await else { return };
    let key = &keys("account", 1)[MOVED as usize];
    let runtime = servers.builder().start().await.unwrap();
    let accounts = runtime.machine::<Account>();
    let credit = |number| Credit { from: "outside".into(), number };
    accounts.send(key, credit(0)).await.unwrap();
    let (first, second) = (servers.first.url(), servers.second.url());
    step(&servers, &first, &Step::ALL).await;
    until("the new place is used", async || accounts.send(key, credit(1)).await.is_ok()).await;
    // A backup of the directory, from the time of the move.
    let mut directory = PgConnection::connect(&servers.url()).await.unwrap();
    let restored = sqlx::query("update fsm_partitions set url = $1, moving_to = $2, place_number = place_number - 1 where partition = 1");
    restored.bind(&second).bind(&first).execute(&mut directory).await.unwrap();
    let (rows, _) = step(&servers, &first, &Step::ALL).await;
    assert_eq!(rows, 0);
    let credits = accounts.settled(key).within(LIMIT).await.unwrap().record.credits;
    assert_eq!(credits.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1]);

    // The process of a move loses its lock, another one cancels the move, and the first one goes on.
    let mut moving = partition_move::begin(&Opening::to_act(servers.url()), MOVED, &second).await.unwrap().unwrap();
    for step in [Step::Announce, Step::Prepare, Step::Freeze] {
        moving.step(step).await.unwrap();
    }
    let lost = "select pg_terminate_backend(l.pid) from pg_locks l where l.locktype = 'advisory' and l.classid = 1718840173";
    sqlx::query(lost).execute(&mut directory).await.unwrap();
    until("the lock is free", async || partition_move::cancel(&Opening::to_act(servers.url()), MOVED).await.is_ok()).await;
    moving.step(Step::Copy).await.unwrap_err();
    moving.step(Step::Switch).await.unwrap_err();
    until("the old place is used again", async || accounts.send(key, credit(2)).await.is_ok()).await;
    let (rows, _) = step(&servers, &second, &Step::ALL).await;
    assert!(rows > 0);
    until("the new place is used", async || accounts.send(key, credit(3)).await.is_ok()).await;
    let credits = accounts.settled(key).within(LIMIT).await.unwrap().record.credits;
    assert_eq!(credits.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_roles_are_at_the_new_place_before_the_partition_is() {
    let Some(servers) = Servers::start().await else { return };
    let roles = |schema: &str| format!("set search_path = {schema}; {}", include_str!("../../../fsm-store/migrations/roles.sql"));
    let run = async |url: String, text: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut PgConnection::connect(&url).await.unwrap()).await.unwrap()
    };
    run(servers.second.url(), roles("fsm_0001")).await;
    let opening = Opening::to_act(servers.url());
    let mut moving = partition_move::begin(&opening, MOVED, &servers.first.url()).await.unwrap().unwrap();
    moving.step(Step::Announce).await.unwrap();
    let error = moving.step(Step::Prepare).await.unwrap_err().to_string();
    assert!(error.contains("roles fsm_sender, fsm_viewer, fsm_worker") && error.contains("search_path = fsm_0001_arriving_2`"), "{error}");
    run(servers.first.url(), roles("fsm_0001_arriving_2")).await;
    for step in &Step::ALL[1..] {
        moving.step(*step).await.unwrap();
    }
    let mut there = PgConnection::connect(&servers.first.url()).await.unwrap();
    let paths = "select distinct p.proconfig::text from pg_proc p where p.pronamespace = 'fsm_0001'::regnamespace";
    let paths: Vec<String> = sqlx::query_scalar(paths).fetch_all(&mut there).await.unwrap();
    assert_eq!(paths, [r#"{"search_path=pg_catalog, fsm_0001, pg_temp"}"#]);
    let read = "set search_path = fsm_0001; set role fsm_worker; select * from fsm_partition; select * from fsm_instances";
    sqlx::raw_sql(read).execute(&mut there).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_during_a_move_joins_the_partition_at_its_new_place() {
    let Some(servers) = Servers::start().await else { return };
    let to = servers.first.url();
    step(&servers, &to, &Step::ALL[..3]).await;
    let runtime = servers.builder().patience(Duration::from_secs(1)).start().await.unwrap();
    assert_eq!(runtime.health().unready_partitions, [MOVED]);
    step(&servers, &to, &Step::ALL).await;
    until("all partitions are used", async || runtime.health().unready_partitions.is_empty()).await;
    runtime.shutdown().await.unwrap();
}

//! Claims, sessions, orphans, and the next due time.

use std::collections::HashSet;
use std::sync::Arc;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::TimerChange;
use fsm_core::ids::{InstanceId, SessionId};
use fsm_core::instance::Instance;
use fsm_core::process::ProcessPlace;
use fsm_core::time::Timestamp;
use tokio::sync::Barrier;
use uuid::Uuid;

use super::samples::{at, beginning, lease, opened, process, session, success, written};
use crate::claim::{Claimed, Except, Served, Which, claim, next_due};
use crate::conn::Conn;
use crate::open::Store;
use crate::testing::{EmptyDatabase, on_each};
use crate::{machines, once, session_log, sessions};

const ALL: Which<'_> = Which::AllBut(&[]);

fn served(verbs: &[&str]) -> Served {
    let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
    Served { machine: "payment".into(), verbs, states: vec!["created".into()], timed: vec!["created".into()], events: vec!["Paid".into()] }
}

async fn claimed(store: &Store, me: SessionId, limit: u32, now: Timestamp) -> Vec<Claimed> {
    let mut tx = store.begin().await.unwrap();
    let claims = claim(&mut tx.conn(), me, &served(&["created", "other"]), limit.into(), now, ALL).await.unwrap();
    tx.commit().await.unwrap();
    claims.claimed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_takes_what_is_due_and_no_more() {
    on_each(async |store| {
        let mut begun: Vec<_> = (0..6).map(|n| beginning(&format!("k{n}"), None)).collect();
        for (n, begun) in begun.iter_mut().enumerate() {
            opened(begun).scheduled_at = at(100 + 10 * (5 - n as i64));
        }
        opened(&mut begun[5]).held = true;
        opened(&mut begun[4]).verb = "unknown".into();
        begun[0].instance.machine = "other".into();
        opened(&mut begun[0]).machine = "other".into();
        written(&store, &begun.iter().collect::<Vec<_>>()).await;

        let me = session();
        assert_eq!(claimed(&store, me, 9, at(119)).await, []);
        let got = claimed(&store, me, 2, at(135)).await;
        assert_eq!(got.iter().map(|got| got.instance.key.as_str()).collect::<Vec<_>>(), ["k3", "k2"]);
        for got in got {
            let begun = begun.iter().find(|begun| begun.instance.id == got.instance.id).unwrap();
            let mut expected = Attempt::clone(&begun.open.as_ref().unwrap().attempt);
            expected.state = AttemptState::Executing;
            expected.worker = Some(me);
            expected.started_at = Some(at(135));
            let instance = Instance { row_version: 1, ..begun.instance.clone() };
            assert_eq!(((*got.attempt).clone(), got.instance), (expected, instance.into()));
            assert_eq!(got.payload, begun.instance.key.as_bytes());
        }
        let mut reader = store.reader().await.unwrap();
        let mut conn = reader.conn();
        assert_eq!(next_due(&mut conn, &served(&["created"]), &Except::default()).await.unwrap(), Some(at(140)));
        assert_eq!(next_due(&mut conn, &served(&["created", "unknown"]), &Except::default()).await.unwrap(), Some(at(110)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attempt_is_given_to_two_of_64_claimers() {
    on_each(async |store| {
        const DUE: usize = 2000;
        for chunk in (0..DUE).collect::<Vec<_>>().chunks(250) {
            let begun: Vec<_> = chunk.iter().map(|n| beginning(&format!("k{n}"), None)).collect();
            written(&store, &begun.iter().collect::<Vec<_>>()).await;
        }
        let barrier = Arc::new(Barrier::new(64));
        let claimers: Vec<_> = (0..64)
            .map(|_| {
                let (store, barrier) = (store.clone(), barrier.clone());
                tokio::spawn(async move {
                    barrier.wait().await;
                    let me = session();
                    let mut mine = Vec::new();
                    loop {
                        let got = claimed(&store, me, 7, at(1000)).await;
                        assert!(got.len() <= 7);
                        if got.is_empty() {
                            return mine;
                        }
                        mine.extend(got.into_iter().map(|got| (got.attempt.call, got.attempt.number)));
                    }
                })
            })
            .collect();
        let mut granted = Vec::new();
        for claimer in claimers {
            granted.extend(claimer.await.unwrap());
        }
        granted.extend(claimed(&store, session(), 5000, at(1000)).await.into_iter().map(|got| (got.attempt.call, got.attempt.number)));
        assert_eq!(granted.len(), DUE);
        assert_eq!(granted.iter().collect::<HashSet<_>>().len(), DUE);
    })
    .await;
}

/// Known bug 6: under any plan that the server makes, a claim locks only as many rows as it takes. While its transaction is open, other
/// sessions can claim all other rows.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_claim_locks_no_more_than_it_takes_under_any_plan() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let begun: Vec<_> = (0..40).map(|n| beginning(&format!("k{n}"), None)).collect();
    written(&store, &begun.iter().collect::<Vec<_>>()).await;
    let kinds = ["seqscan", "indexscan", "indexonlyscan", "bitmapscan", "nestloop", "hashjoin", "mergejoin", "material", "sort"];
    // First each plan node kind is forbidden alone, then all kinds except one.
    let forbidden =
        kinds.iter().map(|kind| vec![*kind]).chain(kinds.iter().map(|kept| kinds.into_iter().filter(|kind| kind != kept).collect()));
    for forbidden in forbidden {
        let mut tx = store.begin_for_user().await.unwrap();
        let Conn::Postgres(guarded) = tx.conn() else { panic!("the store is on PostgreSQL") };
        let conn = guarded.into_inner();
        for kind in &forbidden {
            let text = format!("set local enable_{kind} = off");
            sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut *conn).await.unwrap();
        }
        let mine = claim(&mut tx.conn(), session(), &served(&["created"]), 3.into(), at(1000), ALL).await.unwrap().claimed;
        let mut other = store.begin().await.unwrap();
        let theirs = claim(&mut other.conn(), session(), &served(&["created"]), 100.into(), at(1000), ALL).await.unwrap().claimed;
        assert_eq!((mine.len(), theirs.len()), (3, 37), "without {forbidden:?}");
        other.rollback().await.unwrap();
        tx.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_of_dead_sessions_are_orphans() {
    on_each(async |store| {
        let (alive, silent, gone) = (session(), session(), session());
        let mut dedicated = store.dedicated().await.unwrap();
        let mut conn = dedicated.conn();
        sessions::join(&mut conn, &process("here", 7), 0, lease(alive, 0, 900)).await.unwrap();
        sessions::join(&mut conn, &process("there", u32::MAX), 0, lease(silent, 0, 500)).await.unwrap();
        let begun = [("a", alive), ("s", silent), ("g", gone)].map(|(key, worker)| beginning(key, Some(worker)));
        written(&store, &begun.iter().collect::<Vec<_>>()).await;

        // The executing attempts of sessions without a lease, by the session logs and by a scan of all instances.
        let orphans = async |conn: &mut Conn<'_>, now| {
            let mut keys = Vec::new();
            for session in session_log::dead(conn, now).await.unwrap() {
                keys.extend(session_log::read(conn, session).await.unwrap().1.attempts.into_iter().map(|orphan| orphan.key));
            }
            keys.sort();
            let (unlisted, end) = session_log::unlisted(conn, InstanceId(Uuid::nil()), 9, now).await.unwrap();
            let mut found: Vec<_> = unlisted.attempts.into_iter().map(|orphan| orphan.key).collect();
            found.sort();
            assert_eq!((&found, end), (&keys, None));
            keys
        };
        assert_eq!(orphans(&mut conn, at(499)).await, ["g"]);
        assert_eq!(orphans(&mut conn, at(500)).await, ["g", "s"]);
        assert!(sessions::renew(&mut conn, lease(silent, 0, 950)).await.unwrap());
        assert!(sessions::renew(&mut conn, lease(silent, 0, 100)).await.unwrap(), "one that comes late does not make the lease shorter");
        assert!(!sessions::renew(&mut conn, lease(gone, 0, 950)).await.unwrap());
        assert_eq!(orphans(&mut conn, at(500)).await, ["g"]);
        let (log, held) = session_log::read(&mut conn, alive).await.unwrap();
        assert_eq!((log.len(), &log[0].instances), (1, &vec![begun[0].instance.id]));
        assert_eq!((&held.attempts[0].attempt, held.attempts.len()), (&*begun[0].open.as_ref().unwrap().attempt, 1));

        // A log may list attempts that never began or have ended, and can be shortened to the executing ones.
        written(&store, &[&success(&begun[0])]).await;
        assert_eq!(session_log::read(&mut conn, alive).await.unwrap().1.attempts, []);
        session_log::shorten(&mut conn, alive, &log, &[begun[1].instance.id]).await.unwrap();
        let (log, held) = session_log::read(&mut conn, alive).await.unwrap();
        assert_eq!((log.len(), held.attempts.len()), (1, 0), "it executes nothing");
        session_log::shorten(&mut conn, alive, &log, &[]).await.unwrap();
        assert_eq!(session_log::read(&mut conn, alive).await.unwrap().0, []);

        let idle = session();
        sessions::join(&mut conn, &process("here", 8), 0, lease(idle, 0, 10)).await.unwrap();
        assert_eq!(sessions::delete_expired(&mut conn, at(2000)).await.unwrap(), 2, "neither has a log");
        assert!(!sessions::renew(&mut conn, lease(idle, 0, 3000)).await.unwrap());
        sessions::leave(&mut conn, silent).await.unwrap();
        assert_eq!(orphans(&mut conn, at(500)).await, ["g", "s"]);
    })
    .await;
}

/// The facts that a sweeper knows right after its start, and the sessions that it may end.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_in_which_the_database_was_reached_is_counted_for_those_who_are_silent() {
    on_each(async |store| {
        let (silent, busy) = (session(), session());
        let place = ProcessPlace { machine: None, boot: "b".into(), namespaces: "pid:[1]".into(), started: 70 };
        let process = fsm_core::process::ProcessIdentity { place: Some(place), ..process("here", 7) };
        let mut dedicated = store.dedicated().await.unwrap();
        let mut conn = dedicated.conn();
        sessions::join(&mut conn, &process, 0, lease(silent, 1000, 1500)).await.unwrap();
        sessions::join(&mut conn, &process, 0, lease(busy, 1100, 1600)).await.unwrap();
        // Two heartbeats in time, one after a gap that may be an outage, and one that arrives late.
        for (now, until) in [(1300, 1800), (1550, 2050), (9000, 9500), (8900, 9400)] {
            assert!(sessions::renew(&mut conn, lease(busy, now, until)).await.unwrap());
        }
        let others = sessions::others(&mut conn, busy).await.unwrap();
        let [other] = &others[..] else { panic!("{others:?}") };
        assert_eq!((other.id, &other.process, other.lease_until), (silent, &process, at(1500)));
        assert_eq!((other.lease.as_micros(), other.reachable.as_micros()), (500, 550));
        let me = &sessions::others(&mut conn, silent).await.unwrap()[0];
        assert_eq!((me.lease_until, me.reachable.as_micros()), (at(9500), 0));

        assert!(sessions::renew(&mut conn, lease(silent, 9001, 9501)).await.unwrap());
        assert!(!sessions::end(&mut conn, other).await.unwrap(), "it has renewed its lease meanwhile");
        let again = &sessions::others(&mut conn, busy).await.unwrap()[0];
        assert!(sessions::end(&mut conn, again).await.unwrap());
        assert!(!sessions::end(&mut conn, again).await.unwrap(), "another sweeper was faster");
    })
    .await;
}

/// Sweepers may find the same sessions in different orders, which would be a deadlock if they waited for each other.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn two_sweepers_that_bury_the_same_sessions_do_not_wait_for_each_other() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let mut dedicated = store.dedicated().await.unwrap();
    for _ in 0..3 {
        sessions::join(&mut dedicated.conn(), &process("here", 7), 0, lease(session(), 0, 10)).await.unwrap();
    }
    let (mut first, mut second) = (store.begin().await.unwrap(), store.begin().await.unwrap());
    assert_eq!(sessions::delete_expired(&mut first.conn(), at(20)).await.unwrap(), 3);
    assert_eq!(sessions::delete_expired(&mut second.conn(), at(20)).await.unwrap(), 0);
    first.commit().await.unwrap();
    second.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_can_be_what_is_next() {
    on_each(async |store| {
        let mut begun = beginning("t", None);
        begun.timers.push(TimerChange::Set(fsm_core::changes::Timer {
            id: fsm_core::ids::TimerId(uuid::Uuid::now_v7()),
            instance: begun.instance.id,
            state: None,
            event: fsm_core::outcome::Event { name: "Paid".into(), payload: vec![] },
            due_at: at(50),
            priority: fsm_core::priority::Priority::Normal,
        }));
        written(&store, &[&begun]).await;
        let mut reader = store.reader().await.unwrap();
        assert_eq!(next_due(&mut reader.conn(), &served(&["created"]), &Except::default()).await.unwrap(), Some(at(50)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_and_memoised_effects_are_kept_once() {
    on_each(async |store| {
        let mut tx = store.begin().await.unwrap();
        let mut conn = tx.conn();
        for (hash, now) in [("h1", 1), ("h2", 2), ("h1", 3)] {
            machines::remember(&mut conn, "payment", hash, "{}", at(now)).await.unwrap();
        }
        let definitions = machines::definitions(&mut conn, "payment").await.unwrap();
        let known: Vec<_> = definitions.iter().map(|known| (known.hash.as_str(), known.first_seen_at, known.last_seen_at)).collect();
        assert_eq!(known, [("h2", at(2), at(2)), ("h1", at(1), at(3))], "the one that was started last is last, also after a rollback");

        let (instance, call) = (InstanceId(Uuid::now_v7()), super::samples::call());
        assert_eq!(once::get(&mut conn, call, "charge").await.unwrap(), None);
        assert!(once::put(&mut conn, (instance, call), "charge", b"1", at(1)).await.unwrap());
        assert!(!once::put(&mut conn, (instance, call), "charge", b"2", at(2)).await.unwrap());
        assert_eq!(once::get(&mut conn, call, "charge").await.unwrap(), Some(b"1".to_vec()));
        tx.commit().await.unwrap();
    })
    .await;
}

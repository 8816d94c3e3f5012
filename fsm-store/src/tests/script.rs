//! The write path in one order to the SQLite thread: it writes what `write` writes, all of a batch or nothing, and only if the file version
//! of the decision is unchanged.

use std::time::Duration;

use fsm_core::changes::{Changes, TimerChange};
use fsm_core::commit::rows::FileVersion;
use fsm_core::commit::written::fits;

use super::samples::{at, beginning, going_on, session, success, timer, written};
use crate::claim::{Served, Which};
use crate::error::StoreError;
use crate::open::Store;
use crate::settings::Settings;
use crate::sql::Sql;
use crate::sqlite::file_versions::FileVersions;
use crate::testing::EmptyDatabase;
use crate::write::write_as_script;

/// Every column of every table, except the numbers that the history generates.
async fn rows_of(store: &Store) -> Vec<String> {
    let mut reader = store.reader().await.unwrap();
    let mut conn = reader.conn();
    let mut all = Vec::new();
    for table in ["instances", "async_calls", "inbox", "timers", "requests", "history"] {
        let columns = format!("select c.name from pragma_table_info('fsm_{table}') c where c.name <> 'history_id'");
        let columns = conn.rows(&Sql { sqlite: columns.leak(), postgres: "" }, &[]).await.unwrap();
        let quoted: Vec<_> = columns.iter().map(|row| format!("quote({})", row.get::<String>(0).unwrap())).collect();
        let text = format!("select '{table} ' || {} from fsm_{table} order by 1", quoted.join(" || ' ' || "));
        let rows = conn.rows(&Sql { sqlite: text.leak(), postgres: "" }, &[]).await.unwrap();
        all.extend(rows.iter().map(|row| row.get::<String>(0).unwrap()));
    }
    all
}

/// The file version for the committer's next transaction.
async fn file_version(store: &Store, file_versions: &FileVersions) -> FileVersion {
    let (tx, file_version) = store.begin_at_file_version(file_versions).await.unwrap();
    tx.commit().await.unwrap();
    file_version.expect("a file has versions")
}

async fn whole(store: &Store, file_versions: &FileVersions, file_version: FileVersion, changes: &[&Changes]) -> Result<bool, StoreError> {
    assert!(changes.iter().all(|changes| fits(changes)));
    write_as_script(store, file_versions, file_version, changes, || true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_order_writes_what_a_transaction_writes() {
    let me = session();
    let mut begun = beginning("one", Some(me));
    begun.timers = vec![TimerChange::Set(timer(&begun.instance, None)), TimerChange::Set(timer(&begun.instance, Some("before")))];
    let other = beginning("another \\ 'key'", None);
    let next = going_on(&begun);
    // A paused instance enters the index of paused instances and leaves the due index.
    let mut paused = Changes::of(other.instance.clone());
    paused.instance.paused = true;
    let mut ends = Vec::new();
    for is_whole in [false, true] {
        let fresh = EmptyDatabase::file();
        let store = fresh.open().await;
        let file_versions = FileVersions::default();
        let now = file_version(&store, &file_versions).await;
        for batch in [[&begun, &other], [&next, &paused]] {
            if is_whole {
                assert!(whole(&store, &file_versions, now, &batch).await.unwrap(), "its own commits end no file version");
            } else {
                written(&store, &batch).await;
            }
        }
        ends.push(rows_of(&store).await);
        let listed = Sql { sqlite: "select i.key from fsm_instances i where i.paused and i.machine = 'payment'", postgres: "" };
        assert_eq!(store.reader().await.unwrap().conn().rows(&listed, &[]).await.unwrap().len(), 1);
        store.close().await;
    }
    assert_eq!(ends[0].len(), 2 + 1 + 1 + 2 + 1 + 1, "{:#?}", ends[0]);
    assert_eq!(ends[0], ends[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_member_is_outdated_nothing_is_written() {
    let fresh = EmptyDatabase::file();
    let store = fresh.open().await;
    let (me, file_versions) = (session(), FileVersions::default());
    let (one, two, three) = (beginning("one", Some(me)), beginning("two", Some(me)), beginning("three", Some(me)));
    let first = file_version(&store, &file_versions).await;
    assert!(whole(&store, &file_versions, first, &[&one, &two]).await.unwrap());
    let before = rows_of(&store).await;

    let mut foreign = success(&two);
    foreign.close.as_mut().unwrap().held_by = Some(session());
    assert!(!whole(&store, &file_versions, first, &[&success(&one), &foreign, &three]).await.unwrap(), "another session holds the attempt");
    let taken = beginning("two", Some(me));
    assert!(!whole(&store, &file_versions, first, &[&three, &taken, &success(&one)]).await.unwrap(), "another instance has the key");
    assert!(
        !write_as_script(&store, &file_versions, first, &[&success(&one)], || false).await.unwrap(),
        "the session is not certain any more"
    );
    assert_eq!(rows_of(&store).await, before);

    written(&store, &[&Changes::of(two.instance.clone())]).await;
    assert!(!whole(&store, &file_versions, first, &[&success(&one)]).await.unwrap(), "somebody else had his turn on this connection");
    let second = file_version(&store, &file_versions).await;
    let process = Store::open(Settings::new(fresh.url())).await.unwrap();
    written(&process, &[&beginning("theirs", None)]).await;
    let before = rows_of(&store).await;
    assert!(!whole(&store, &file_versions, second, &[&success(&one)]).await.unwrap(), "another process wrote");
    assert_eq!(rows_of(&store).await, before);

    let third = file_version(&store, &file_versions).await;
    assert!(whole(&store, &file_versions, third, &[&success(&one), &success(&two), &three]).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_fails_writes_nothing_and_takes_its_connection_along() {
    let fresh = EmptyDatabase::file();
    let store = fresh.open().await;
    let file_versions = FileVersions::default();
    let mut begun = beginning("one", None);
    begun.timers = vec![TimerChange::Set(timer(&begun.instance, None))];
    written(&store, &[&begun]).await;
    // A timer with this id exists already.
    let twin = Changes { timers: begun.timers.clone(), ..beginning("two", None) };
    let now = file_version(&store, &file_versions).await;
    let before = rows_of(&store).await;
    assert!(matches!(whole(&store, &file_versions, now, &[&twin]).await, Err(StoreError::Database(_))));
    assert_eq!(rows_of(&store).await, before);
    // The failed transaction closed its connection. The next one is on another connection, and so has another file version.
    let three = beginning("three", None);
    assert!(!whole(&store, &file_versions, now, &[&three]).await.unwrap());
    let now = file_version(&store, &file_versions).await;
    assert!(whole(&store, &file_versions, now, &[&three]).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_orders_next_is_next() {
    let fresh = EmptyDatabase::file();
    let store = fresh.open().await;
    let file_versions = FileVersions::default();
    let now = file_version(&store, &file_versions).await;
    let (one, two) = (beginning("one", None), beginning("two", None));
    let (ones, twos) = ([&one], [&two]);
    let first = write_as_script(&store, &file_versions, now, &ones, || {
        std::thread::sleep(Duration::from_millis(100));
        true
    });
    let served = Served { machine: "payment".into(), verbs: vec!["created".into()], states: vec![], timed: vec![], events: vec![] };
    let second = whole(&store, &file_versions, now, &twos);
    // They are polled in this order. None waits for the answer of the one before.
    let (first, second, claimed) =
        tokio::join!(biased; first, second, store.claim(session(), &served, 5.into(), at(100), Which::AllBut(&[])));
    assert!(first.unwrap() && second.unwrap());
    assert_eq!(claimed.unwrap().claimed.len(), 2, "the claim comes after both");
}

//! The write path in one statement: it writes what `write` writes, without the outdated changes of a batch, and does not wait for existing
//! rows.

use fsm_core::changes::{Changes, TimerChange};
use fsm_core::commit::rows::{RowSnapshot, Target};
use fsm_core::commit::written::fits;
use fsm_core::instance::Instance;

use super::samples::{at, beginning, going_on, session, success, timer, written};
use crate::conn::Conn;
use crate::lock;
use crate::open::Store;
use crate::settings::Settings;
use crate::sql::{AT_VERSION, Sql};
use crate::testing::EmptyDatabase;
use crate::write::write_single_statement;

/// The tables that must contain rows after the write.
const TABLES: [&str; 6] = ["instances", "async_calls", "inbox", "timers", "requests", "history"];

/// The keys of the instances that were written, in order; `None` if a unique index rejected the statement.
async fn single_statement(store: &Store, changes: &[&Changes]) -> Option<Vec<String>> {
    assert!(changes.iter().all(|changes| fits(changes)));
    let mut reader = store.for_commits().await.unwrap().expect("the server is spoken to directly");
    let guarded: Vec<_> = changes.iter().map(|changes| (*changes, at(100))).collect();
    let good = write_single_statement(&mut reader.conn(), &guarded).await.unwrap()?;
    let written = changes.iter().filter(|changes| good.contains(&changes.instance.id));
    Some(written.map(|changes| changes.instance.key.clone()).collect())
}

/// The same change, decided on this row version.
fn decided_on(row_version: i64, changes: &Changes) -> Changes {
    let mut changes = changes.clone();
    changes.instance.row_version = row_version;
    changes
}

async fn seen(store: &Store, key: &str) -> Option<RowSnapshot> {
    let mut reader = store.for_commits().await.unwrap().expect("the server is spoken to directly");
    lock::see(&mut reader.conn(), &[Target { machine: "payment", key }], None).await.unwrap().remove(0)
}

async fn row_version(store: &Store, key: &str) -> i64 {
    seen(store, key).await.expect("it is there").instance.row_version
}

/// All rows of the tables.
async fn rows(conn: &mut Conn<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for table in TABLES {
        let text = format!("select '{table} ' || (to_jsonb(t) - 'history_id')::text from fsm_{table} t order by 1");
        let rows = conn.rows(&Sql { sqlite: "", postgres: text.leak() }, &[]).await.unwrap();
        all.extend(rows.iter().map(|row| row.get::<String>(0).unwrap()));
    }
    all
}

async fn rows_of(store: &Store) -> Vec<String> {
    rows(&mut store.reader().await.unwrap().conn()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_statement_writes_what_a_transaction_writes() {
    let me = session();
    let mut begun = beginning("one", Some(me));
    begun.timers = vec![TimerChange::Set(timer(&begun.instance, None)), TimerChange::Set(timer(&begun.instance, Some("before")))];
    let other = beginning("another \\ 'key'", None);
    let next = going_on(&begun);
    let mut ends = Vec::new();
    for is_at_once in [false, true] {
        let fresh = EmptyDatabase::postgres().await;
        let store = fresh.open().await;
        if is_at_once {
            assert_eq!(single_statement(&store, &[&begun, &other]).await.unwrap().len(), 2);
            assert_eq!(row_version(&store, "one").await, 0);
            assert_eq!(single_statement(&store, &[&next]).await.unwrap(), ["one"]);
            let left =
                Some((Instance { row_version: 1, ..next.instance.clone() }.into(), next.open.clone().map(|open| open.attempt), true));
            assert_eq!(seen(&store, "one").await.map(|seen| (seen.instance, seen.newest, seen.has_timer)), left);
        } else {
            written(&store, &[&begun, &other]).await;
            written(&store, &[&next]).await;
        }
        ends.push(rows_of(&store).await);
        store.close().await;
    }
    assert_eq!(ends[0].len(), 2 + 1 + 1 + 2 + 1 + 1, "{:#?}", ends[0]);
    assert_eq!(ends[0], ends[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_member_fails_alone() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let me = session();
    let (one, two) = (beginning("one", Some(me)), beginning("two", Some(me)));
    assert_eq!(single_statement(&store, &[&one, &two]).await.unwrap(), ["one", "two"]);
    let about_two =
        async || rows_of(&store).await.into_iter().filter(|row| row.contains(&two.instance.id.0.to_string())).collect::<Vec<_>>();
    let before = about_two().await;

    // Another session holds the attempt.
    let mut foreign = going_on(&two);
    foreign.close.as_mut().unwrap().held_by = Some(session());
    let three = beginning("three", Some(me));
    assert_eq!(single_statement(&store, &[&success(&one), &foreign, &three]).await.unwrap(), ["one", "three"]);
    // The attempt was never begun.
    let mut unknown = going_on(&two);
    unknown.close.as_mut().unwrap().number = 2;
    assert_eq!(single_statement(&store, &[&unknown, &success(&three)]).await.unwrap(), ["three"]);
    // Another instance has the key.
    let mut taken = going_on(&beginning("two", Some(me)));
    (taken.is_new, taken.close, taken.timers) = (true, None, Vec::new());
    let four = beginning("four", Some(me));
    assert_eq!(single_statement(&store, &[&taken, &four]).await.unwrap(), ["four"]);
    // The instance was written again, although no value changed.
    assert_eq!(about_two().await, before);
    written(&store, &[&Changes::of(two.instance.clone())]).await;
    assert_eq!(single_statement(&store, &[&going_on(&two), &success(&four)]).await.unwrap(), ["four"]);

    // A server that lost a commit assigns its row version again.
    let latest = row_version(&store, "two").await;
    assert_eq!(latest, 1);
    let ended = decided_on(latest, &success(&two));
    let mut conn = store.for_commits().await.unwrap().unwrap();
    assert!(write_single_statement(&mut conn.conn(), &[(&ended, at(7777))]).await.unwrap().unwrap().is_empty());
    drop(conn);
    assert_eq!(single_statement(&store, &[&decided_on(latest, &success(&two))]).await.unwrap(), ["two"]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_has_locked_is_not_waited_for() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    single_statement(&store, &[&begun]).await.unwrap();
    let mut held = store.begin().await.unwrap();
    lock::instances(&mut held.conn(), &[Target { machine: "payment", key: "one" }]).await.unwrap();
    assert!(single_statement(&store, &[&success(&begun)]).await.unwrap().is_empty());
    held.rollback().await.unwrap();
    assert_eq!(single_statement(&store, &[&success(&begun)]).await.unwrap(), ["one"]);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_write_one_instance_at_once_one_does() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    single_statement(&store, &[&begun]).await.unwrap();
    let ends: Vec<_> = (0..8)
        .map(|_| {
            let (store, ended) = (store.clone(), success(&begun));
            tokio::spawn(async move { single_statement(&store, &[&ended]).await.is_some_and(|written| !written.is_empty()) })
        })
        .collect();
    let mut successes = 0;
    for end in ends {
        successes += usize::from(end.await.unwrap());
    }
    assert_eq!(successes, 1);
    store.close().await;
}

/// The guard checks the row version that it locks, not the one that existed when its statement began.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_written_while_the_guard_runs_counts_as_changed() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    written(&store, &[&begun]).await;
    let asked = async |text: &'static str| {
        let mut reader = store.reader().await.unwrap();
        reader.conn().rows(&Sql { sqlite: "", postgres: text }, &[]).await.unwrap()
    };
    let row_version: i64 = asked("select row_version from fsm_instances").await[0].get(0).unwrap();

    // The rows of the statement come only after the test releases an advisory lock. Its snapshot is taken before.
    let gate = "(select count(*) from (select pg_advisory_xact_lock_shared(7)) gate) = 1";
    let text = AT_VERSION.among_others(1, gate, false);
    let text = text.replace("$1", &format!("array['{}']", begun.instance.id.0)).replace("$2", &format!("array[{row_version}]"));
    let text = text.replace("$3", "array[100]");
    let text: &'static str = text.leak();
    let mut holder = store.begin().await.unwrap();
    holder.conn().rows(&Sql { sqlite: "", postgres: "select pg_advisory_xact_lock(7)::text" }, &[]).await.unwrap();
    let guard = tokio::spawn({
        let store = store.clone();
        async move {
            let mut conn = store.for_commits().await.unwrap().unwrap();
            conn.conn().rows(&Sql { sqlite: "", postgres: text }, &[]).await.unwrap().len()
        }
    });
    while asked("select 1 from pg_locks where locktype = 'advisory' and not granted").await.is_empty() {}
    written(&store, &[&Changes::of(begun.instance.clone())]).await;
    holder.rollback().await.unwrap();
    assert_eq!(guard.await.unwrap(), 0);

    let latest: i64 = asked("select row_version from fsm_instances").await[0].get(0).unwrap();
    assert_ne!(latest, row_version);
    let text: &'static str = text.replace(&format!("array[{row_version}]"), &format!("array[{latest}]")).leak();
    assert_eq!(asked(text).await.len(), 1, "the same guard finds a row that is as it was seen");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_set_only_where_it_is_nobody_elses() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    let setting = |name: &str| Sql { sqlite: "", postgres: format!("select current_setting('{name}')").leak() };
    let ask = async |conn: &mut Conn<'_>, name: &str| conn.rows(&setting(name), &[]).await.unwrap()[0].get::<String>(0).unwrap();
    // The same connection gets the planner settings for commits, and loses them for reads.
    let mut settings = Settings::new(fresh.url());
    settings.connections = 1;
    let single = Store::open(settings).await.unwrap();
    for store in [&store, &single] {
        for _ in 0..2 {
            let mut commits = store.for_commits().await.unwrap().unwrap();
            assert_eq!(ask(&mut commits.conn(), "enable_seqscan").await, "off");
            assert_eq!(ask(&mut commits.conn(), "lock_timeout").await, "250ms");
            drop(commits);
            let mut reader = store.reader().await.unwrap();
            assert_eq!(ask(&mut reader.conn(), "enable_seqscan").await, "on");
            assert_eq!(ask(&mut reader.conn(), "lock_timeout").await, "0");
        }
    }
    // Behind a pooler, which the URL declares, the session is not configured.
    let url = fresh.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    let pooled = Store::open(Settings::new(format!("{url}{separator}statement-cache-capacity=0"))).await.unwrap();
    assert!(pooled.for_commits().await.unwrap().is_none());
    for store in [store, single, pooled] {
        store.close().await;
    }
    assert!(EmptyDatabase::Memory.open().await.for_commits().await.unwrap().is_none());
}

/// The plan with which the connection for commits finds instances.
async fn plan(store: &Store) -> String {
    let mut reader = store.for_commits().await.unwrap().unwrap();
    let mut conn = reader.conn();
    let prepared = Sql {
        sqlite: "",
        postgres: "select name from pg_prepared_statements where statement like '%join fsm_instances i on i.machine = w.machine%'",
    };
    let name: String = conn.rows(&prepared, &[]).await.unwrap()[0].get(0).unwrap();
    let explain = Sql { sqlite: "", postgres: format!("explain execute {name} (null, null)").leak() };
    conn.rows(&explain, &[]).await.unwrap().iter().map(|line| line.get::<String>(0).unwrap() + "\n").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_was_made_while_the_tables_were_empty_is_not_kept() {
    let fresh = EmptyDatabase::postgres().await;
    let store = fresh.open().await;
    store.reader().await.unwrap().conn().script("analyze").await.unwrap();
    assert_eq!(seen(&store, "1").await, None);
    let many = "insert into fsm_instances (instance_id, machine, key, status, paused, version, is_open, inbox_head, inbox_tail, created_at, updated_at)
        select gen_random_uuid(), 'payment', n::text, 'running', false, 0, false, 0, 0, 0, 0 from generate_series(1, 2000) n";
    store.reader().await.unwrap().conn().script(many).await.unwrap();
    let goes_by_key = "Index Cond: ((machine = u.machine)";
    assert!(!plan(&store).await.contains(goes_by_key), "PostgreSQL keeps the plan, else this shows nothing");
    for _ in 0..40 {
        assert!(seen(&store, "1").await.is_some());
    }
    let now = plan(&store).await;
    assert!(now.contains(goes_by_key), "{now}");
}

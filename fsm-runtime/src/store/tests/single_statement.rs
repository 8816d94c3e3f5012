//! The door in one statement: it writes what `write` writes, for all of a batch or for none, and waits for no row that exists.

use fsm_core::changes::{Changes, Note, NoteKind, Open, Payload, Request, Timer, TimerChange, Waits};
use fsm_core::ids::TimerId;
use fsm_core::instance::Instance;
use fsm_core::outcome::Event;
use uuid::Uuid;

use super::samples::{Fresh, at, attempt, beginning, call, session, success, written};
use crate::store::conn::Conn;
use crate::store::lock::{self, RowSnapshot, Target};
use crate::store::open::{Settings, Store};
use crate::store::sql::{AT_VERSION, Sql};
use crate::store::write::{RowVersion, fits, write_single_statement};

/// What must be in every table after the writing.
const TABLES: [&str; 6] = ["instances", "async_calls", "inbox", "timers", "requests", "history"];

/// The number of the commit.
async fn single_statement(store: &Store, changes: &[(&Changes, Option<RowVersion>)]) -> Option<i64> {
    assert!(changes.iter().all(|(changes, _)| fits(changes)));
    let mut reader = store.for_commits().await.unwrap().expect("the server is spoken to directly");
    write_single_statement(&mut reader.conn(), changes).await.unwrap()
}

/// How that commit left the instance.
fn stamped(xmin: Option<i64>, changes: &Changes) -> Option<RowVersion> {
    xmin.map(|xmin| RowVersion::Row { xmin, updated_at: changes.instance.updated_at })
}

async fn seen(store: &Store, key: &str) -> Option<RowSnapshot> {
    let mut reader = store.for_commits().await.unwrap().expect("the server is spoken to directly");
    lock::see(&mut reader.conn(), &[Target { machine: "payment", key }], None).await.unwrap().remove(0)
}

async fn row_version(store: &Store, key: &str) -> Option<RowVersion> {
    seen(store, key).await.map(|seen| seen.row_version)
}

/// All that is in the tables.
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

pub(super) fn timer(instance: &Instance, state: Option<&str>) -> Timer {
    let event = Event { name: "Timeout".into(), payload: b"7".to_vec() };
    Timer { id: TimerId(Uuid::now_v7()), instance: instance.id, state: state.map(Into::into), event, due_at: at(300) }
}

fn note(instance: &Instance) -> Note {
    let (id, detail, actor) = (instance.id, Some("it \"was\" 'late'".into()), None);
    Note { instance: id, at: at(1), kind: NoteKind::Late, call: Some(call()), detail, actor }
}

/// The end of a first transition that leads on, with all that one statement can write beside.
pub(super) fn going_on(begun: &Changes) -> Changes {
    let mut changes = success(begun);
    let next = attempt(&changes.instance, call(), begun.open.as_ref().unwrap().attempt.worker);
    changes.instance = Instance { newest: Some((next.call, 1)), is_open: true, inbox_tail: 1, ..changes.instance };
    changes.open = Some(Open { attempt: next.into(), payload: Some(Payload::Bytes(vec![0, 255])) });
    changes.timers = vec![TimerChange::Clear, TimerChange::Set(timer(&changes.instance, Some("created")))];
    changes.notes = vec![note(&changes.instance)];
    changes.request = Some(Request { dedup: "d".into(), event: Some("Paid".into()), digest: vec![1], call: call(), at: at(1) });
    let event = Event { name: "Paid".into(), payload: b"8".to_vec() };
    changes.waits = Some(Waits { position: 0, call: call(), event, forecast: None });
    changes
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
        let fresh = Fresh::postgres().await;
        let store = fresh.open().await;
        if is_at_once {
            let first = stamped(single_statement(&store, &[(&begun, None), (&other, None)]).await, &begun);
            assert!(first.is_some() && first == row_version(&store, "one").await, "the stamp of the commit is the stamp of the row");
            let second = stamped(single_statement(&store, &[(&next, first)]).await, &next);
            assert!(second.is_some() && second != first && second == row_version(&store, "one").await);
            let left = Some((next.instance.clone().into(), true));
            assert_eq!(seen(&store, "one").await.map(|seen| (seen.instance, seen.has_timer)), left);
        } else {
            written(&store, &[&begun, &other]).await;
            written(&store, &[&next]).await;
        }
        ends.push(rows_of(&store).await);
        store.close().await;
    }
    assert_eq!(ends[0].len(), 2 + 3 + 1 + 2 + 1 + 1, "{:#?}", ends[0]);
    assert_eq!(ends[0], ends[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_member_is_outdated_nothing_is_written() {
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let me = session();
    let (one, two, three) = (beginning("one", Some(me)), beginning("two", Some(me)), beginning("three", Some(me)));
    let first = stamped(single_statement(&store, &[(&one, None), (&two, None)]).await, &one);
    assert_eq!(row_version(&store, "two").await, first);
    let before = rows_of(&store).await;

    // Somebody else's session holds the attempt.
    let mut foreign = success(&two);
    foreign.close.as_mut().unwrap().held_by = Some(session());
    assert_eq!(single_statement(&store, &[(&success(&one), first), (&foreign, first), (&three, None)]).await, None);
    // The attempt was never begun.
    let mut unknown = success(&two);
    unknown.close.as_mut().unwrap().number = 2;
    assert_eq!(single_statement(&store, &[(&success(&one), first), (&unknown, first)]).await, None);
    // The key is taken.
    let mut taken = beginning("two", Some(me));
    taken.notes.push(note(&taken.instance));
    assert_eq!(single_statement(&store, &[(&three, None), (&taken, None), (&success(&one), first)]).await, None);
    // A commit that was lost had the same number.
    let Some(RowVersion::Row { xmin, .. }) = first else { panic!("it has no stamp") };
    let lost = Some(RowVersion::Row { xmin, updated_at: at(7777) });
    assert_eq!(single_statement(&store, &[(&success(&one), first), (&success(&two), lost)]).await, None);
    // The instance was written since.
    assert_eq!(rows_of(&store).await, before);
    written(&store, &[&Changes::of(two.instance.clone())]).await;
    assert_eq!(rows_of(&store).await, before, "the same is written, by another commit");
    assert_eq!(single_statement(&store, &[(&success(&one), first), (&success(&two), first)]).await, None);
    assert_eq!(rows_of(&store).await, before);

    let latest = row_version(&store, "two").await;
    assert!(single_statement(&store, &[(&success(&one), first), (&success(&two), latest), (&three, None)]).await.is_some());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_has_locked_is_not_waited_for() {
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    let first = stamped(single_statement(&store, &[(&begun, None)]).await, &begun);
    let mut held = store.begin().await.unwrap();
    lock::instances(&mut held.conn(), &[Target { machine: "payment", key: "one" }]).await.unwrap();
    assert_eq!(single_statement(&store, &[(&success(&begun), first)]).await, None);
    held.rollback().await.unwrap();
    assert!(single_statement(&store, &[(&success(&begun), first)]).await.is_some());
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_write_one_instance_at_once_one_does() {
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    let first = stamped(single_statement(&store, &[(&begun, None)]).await, &begun);
    let ends: Vec<_> = (0..8)
        .map(|_| {
            let (store, ended) = (store.clone(), success(&begun));
            tokio::spawn(async move { single_statement(&store, &[(&ended, first)]).await.is_some() })
        })
        .collect();
    let mut successes = 0;
    for end in ends {
        successes += usize::from(end.await.unwrap());
    }
    assert_eq!(successes, 1);
    store.close().await;
}

/// The guard looks at the row that it locks, not at the one that was there when its statement began.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_written_while_the_guard_runs_counts_as_changed() {
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let begun = beginning("one", Some(session()));
    written(&store, &[&begun]).await;
    let asked = async |text: &'static str| {
        let mut reader = store.reader().await.unwrap();
        reader.conn().rows(&Sql { sqlite: "", postgres: text }, &[]).await.unwrap()
    };
    let row_version: i64 = asked("select xmin::text::bigint from fsm_instances").await[0].get(0).unwrap();

    // Its rows come once a lock is free that others hold, and what it sees was fixed before.
    let gate = "(select count(*) from (select pg_advisory_xact_lock_shared(7)) gate) = 1";
    let text = AT_VERSION.among_others(1, gate);
    let text = text.replace("$1", &format!("array['{}']", begun.instance.id.0)).replace("$2", &format!("array[{row_version}]"));
    let text = text.replace("$3", &format!("array[{}]", begun.instance.updated_at.as_micros()));
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

    let latest: i64 = asked("select xmin::text::bigint from fsm_instances").await[0].get(0).unwrap();
    assert_ne!(latest, row_version);
    let text: &'static str = text.replace(&format!("array[{row_version}]"), &format!("array[{latest}]")).leak();
    assert_eq!(asked(text).await.len(), 1, "the same guard finds a row that is as it was seen");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_set_only_where_it_is_nobody_elses() {
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    let setting = |name: &str| Sql { sqlite: "", postgres: format!("select current_setting('{name}')").leak() };
    let ask = async |conn: &mut Conn<'_>, name: &str| conn.rows(&setting(name), &[]).await.unwrap()[0].get::<String>(0).unwrap();
    // One connection is set for commits, and as it was for whoever reads.
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
    // Behind a pooler, as its users say by the URL, sessions are left alone.
    let url = fresh.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    let pooled = Store::open(Settings::new(format!("{url}{separator}statement-cache-capacity=0"))).await.unwrap();
    assert!(pooled.for_commits().await.unwrap().is_none());
    for store in [store, single, pooled] {
        store.close().await;
    }
    assert!(Fresh::Memory.open().await.for_commits().await.unwrap().is_none());
}

/// How the connection for commits will look instances up.
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
    let fresh = Fresh::postgres().await;
    let store = fresh.open().await;
    store.reader().await.unwrap().conn().script("analyze").await.unwrap();
    assert_eq!(seen(&store, "1").await, None);
    let many = "insert into fsm_instances (instance_id, machine, key, status, paused, version, is_open, inbox_head, inbox_tail, created_at, updated_at)
        select gen_random_uuid(), 'payment', n::text, 'running', false, 0, false, 0, 0, 0, 0 from generate_series(1, 2000) n";
    store.reader().await.unwrap().conn().script(many).await.unwrap();
    let goes_by_key = "Index Cond: ((machine = unnest";
    assert!(!plan(&store).await.contains(goes_by_key), "PostgreSQL keeps the plan, else this shows nothing");
    for _ in 0..40 {
        assert!(seen(&store, "1").await.is_some());
    }
    let now = plan(&store).await;
    assert!(now.contains(goes_by_key), "{now}");
}

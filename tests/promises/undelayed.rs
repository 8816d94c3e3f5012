//! One locked or broken row, and verbs that hold connections, delay nothing else.

use std::future::IntoFuture;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fsm::Handle;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm_runtime::admin::{Admin, Opening};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use tokio::time::timeout;

use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{assert_invariants_hold, promise};

const A_MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note;
/// Fails once, and has a retry after a second.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Again;
/// Rests until its timer, after a second.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Rest;

#[verb]
async fn noted(_event: Note) -> Result {
    Ok(())
}

#[verb]
#[retry(1, "1s")]
async fn repeated(ctx: &mut Ctx<'_>, _event: Again) -> Result {
    if ctx.attempt() == 1 { Err(Failure::new("once")) } else { Ok(()) }
}

#[verb]
async fn resting(_event: Rest) -> Result {
    Ok(())
}

#[verb]
async fn rested(_timeout: Timeout) -> Result {
    Ok(())
}

fsm! {
    machine Desk = "desk" {
        start noted | repeated | resting;
        noted -> noted;
        repeated -> noted;
        resting -> noted;
        resting after "1s" -> rested;
        end rested;
    }
}

/// Two machines, so that one could delay the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Copy;

#[verb]
#[retry(1, "1s")]
async fn copied(ctx: &mut Ctx<'_>, _event: Copy) -> Result {
    if ctx.attempt() == 1 { Err(Failure::new("once")) } else { Ok(()) }
}

fsm! {
    machine Archive = "archive" {
        start copied;
        end copied;
    }
}

fn desks() -> TestBedBuilder {
    TestBed::builder().only::<Desk>().only::<Archive>().only::<SqlRunner>()
}

async fn runtime(bed: &TestBed) -> Runtime {
    Runtime::builder().database(bed.url()).only::<Desk>().start().await.unwrap()
}

/// Another client locks the rows of these instances.
async fn locked(url: &str, keys: &str) -> PgConnection {
    let mut other = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("begin").execute(&mut other).await.unwrap();
    let lock = "select 1 from fsm_instances where key like $1 for update";
    assert_eq!(sqlx::query(lock).bind(keys).fetch_all(&mut other).await.unwrap().len(), LOCKED);
    other
}

const LOCKED: usize = 8;

/// The second slowest of a hundred.
fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[(took.len() * 99).div_ceil(100) - 1]
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_locked_rows_delay_no_other_send_retry_or_timer() {
    let bed = desks().postgres().await;
    let runtime = runtime(&bed).await;
    let desks = runtime.machine::<Desk>();
    for n in 0..LOCKED {
        desks.send(format!("locked-{n}"), Rest).await.unwrap();
        desks.settled(format!("locked-{n}")).await.unwrap();
    }
    let other = locked(bed.url(), "locked-%").await;
    let held: Vec<_> = (0..LOCKED).map(|n| tokio::spawn(desks.send(format!("locked-{n}"), Note).into_future())).collect();
    // The retries and timers of these instances come due while the rows are locked, like the timers of the locked instances.
    for n in 0..5 {
        desks.send(format!("retried-{n}"), Again).await.unwrap();
        desks.send(format!("timed-{n}"), Rest).await.unwrap();
    }
    let (mut took, since) = (Vec::new(), Instant::now());
    while since.elapsed() < Duration::from_secs(4) {
        let began = Instant::now();
        desks.send(format!("free-{}", took.len()), Note).await.unwrap();
        took.push(began.elapsed());
    }
    let p99 = p99(took);
    assert!(p99 < Duration::from_secs(1), "99 of 100 sends to other instances took up to {p99:?}");
    assert!(held.iter().all(|held| !held.is_finished()), "what is locked waits");
    for n in 0..5 {
        let retried = desks.get(format!("retried-{n}")).await.unwrap().unwrap();
        assert_eq!((retried.version, retried.status), (1, Status::Running), "its retry was due in time");
        let timed = desks.get(format!("timed-{n}")).await.unwrap().unwrap();
        assert_eq!(timed.status, Status::Completed, "its timer was due in time");
    }
    other.close().await.unwrap();
    for (n, held) in held.into_iter().enumerate() {
        timeout(Duration::from_secs(5), held).await.expect("the lock is gone").unwrap().unwrap();
        let settled = desks.settled(format!("locked-{n}")).await.unwrap();
        assert!(settled.version >= 2, "it moved on");
    }
    runtime.shutdown().await.unwrap();
    assert_invariants_hold(&bed).await;
}

/// An open transaction has inserted the key, so there is no row yet that could be locked.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_an_open_transaction_creates_delays_no_other_send() {
    let bed = desks().postgres().await;
    let runtime = runtime(&bed).await;
    let desks = runtime.machine::<Desk>();
    let mut other = PgConnection::connect(bed.url()).await.unwrap();
    let mut open = other.begin().await.unwrap();
    desks.send_in(&mut open, "taken", Note).await.unwrap();
    let held = tokio::spawn(desks.send("taken", Note).into_future());
    let mut took = Vec::new();
    for round in 0..20 {
        let began = Instant::now();
        for sent in join_all((0..10).map(|n| desks.send(format!("free-{round}-{n}"), Note).into_future())).await {
            sent.unwrap();
            took.push(began.elapsed());
        }
    }
    let slowest = took.into_iter().max().unwrap();
    assert!(slowest < Duration::from_secs(1), "a send to another instance took {slowest:?}");
    assert!(!held.is_finished());
    open.commit().await.unwrap();
    timeout(Duration::from_secs(5), held).await.expect("the key is there").unwrap().unwrap();
    assert_eq!(desks.settled("taken").await.unwrap().version, 2);
    runtime.shutdown().await.unwrap();
    assert_invariants_hold(&bed).await;
}

/// The row raises an error at each write.
async fn break_row(bed: &TestBed, table: &str, key: &str) {
    let is_it = match table {
        "fsm_instances" => format!("new.key like '{key}'"),
        _ => format!("(select key from fsm_instances where instance_id = new.instance_id) like '{key}'"),
    };
    if is_postgres(bed) {
        let body = format!("if {is_it} then raise 'this row is broken'; end if; return new;");
        run(bed, format!("create function broken() returns trigger language plpgsql as $$ begin {body} end $$")).await;
        run(bed, format!("create trigger broken before update on {table} for each row execute function broken()")).await;
    } else {
        let raises = "select raise(abort, 'this row is broken')";
        run(bed, format!("create trigger broken before update on {table} when {is_it} begin {raises}; end")).await;
    }
}

async fn repair_row(bed: &TestBed, table: &str) {
    run(bed, if is_postgres(bed) { format!("drop trigger broken on {table}") } else { "drop trigger broken".to_owned() }).await;
}

promise! {
    async fn a_row_that_cannot_be_claimed_delays_no_other_attempt(bed in desks()) {
        let (desks, archives) = (bed.machine::<Desk>(), bed.machine::<Archive>());
        for n in 0..6 {
            desks.send(format!("d-{n}"), Again).await.unwrap();
            archives.send(format!("s-{n}"), Copy).await.unwrap();
        }
        bed.run_until_idle().await;
        break_row(bed, "fsm_instances", "d-2").await;
        bed.advance(Duration::from_secs(1)).await;
        for n in 0..6 {
            let version = desks.get(format!("d-{n}")).await.unwrap().unwrap().version;
            assert_eq!(version, i64::from(n != 2), "d-{n}");
            assert_eq!(archives.get(format!("s-{n}")).await.unwrap().unwrap().status, Status::Completed, "s-{n}");
        }
        repair_row(bed, "fsm_instances").await;
        bed.advance(A_MINUTE).await;
        assert_eq!(desks.get("d-2").await.unwrap().unwrap().version, 1, "it runs once it can be claimed");
    }
}

promise! {
    /// A count is never negative, so no version of the code writes such a row.
    async fn a_row_that_cannot_be_read_delays_no_other_attempt(bed in desks()) {
        let desks = bed.machine::<Desk>();
        for n in 0..6 {
            desks.send(format!("d-{n}"), Again).await.unwrap();
        }
        bed.run_until_idle().await;
        let of_d_2 = "key = 'd-2' and attempt_state = 'scheduled'";
        run(bed, format!("update fsm_instances set remaining_attempts = -5 where {of_d_2}")).await;
        bed.advance(Duration::from_secs(3)).await;
        for n in 0..6 {
            let key = format!("d-{n}");
            let ended = run(bed, format!("select version from fsm_instances where key = '{key}'")).await;
            assert_eq!(ended, Some(i64::from(n != 2)), "{key}");
        }
        let left = run(bed, format!("select count(*) from fsm_instances where {of_d_2}")).await;
        assert_eq!(left, Some(1), "what cannot be read is given back");
        run(bed, format!("update fsm_instances set remaining_attempts = 0 where {of_d_2}")).await;
        bed.advance(A_MINUTE).await;
        assert_eq!(desks.get("d-2").await.unwrap().unwrap().version, 1);
    }
}

promise! {
    async fn the_doctor_names_an_attempt_that_cannot_be_claimed(bed in desks()) {
        let desks = bed.machine::<Desk>();
        desks.send("one", Again).await.unwrap();
        desks.send("two", Again).await.unwrap();
        bed.run_until_idle().await;
        break_row(bed, "fsm_instances", "two").await;
        bed.advance(Duration::from_secs(120)).await;
        let call = desks.get("two").await.unwrap().unwrap().call.unwrap().id;
        let admin = Admin::open(Opening::inside(bed).of_key("two")).await.unwrap();
        let stuck = admin.checkup().await.unwrap().into_iter().filter(|finding| finding.about == "stuck").collect::<Vec<_>>();
        assert_eq!(stuck.len(), 1, "{stuck:?}");
        let named = format!("an attempt of `desk` `two`, call {call}, cannot be claimed: the database says: ");
        assert!(stuck[0].says.starts_with(&named) && stuck[0].says.contains("this row is broken"), "{}", stuck[0].says);
        repair_row(bed, "fsm_instances").await;
        bed.advance(A_MINUTE).await;
        assert_eq!(desks.get("two").await.unwrap().unwrap().version, 1, "the doctor changed nothing");
        assert!(admin.checkup().await.unwrap().iter().all(|finding| finding.about != "stuck"));
    }
}

promise! {
    /// There are more of them than one scan takes, and they were due first.
    async fn timers_that_cannot_fire_take_no_place_of_others(bed in desks()) {
        let desks = bed.machine::<Desk>();
        for sent in join_all((0..130).map(|n| desks.send(format!("bad-{n}"), Rest).into_future())).await {
            sent.unwrap();
        }
        bed.run_until_idle().await;
        break_row(bed, "fsm_instances", "bad-%").await;
        bed.advance(Duration::from_millis(500)).await;
        desks.send("good", Rest).await.unwrap();
        bed.advance(Duration::from_secs(2)).await;
        assert_eq!(desks.get("good").await.unwrap().unwrap().status, Status::Completed);
        assert_eq!(desks.get("bad-7").await.unwrap().unwrap().version, 1);
        repair_row(bed, "fsm_instances").await;
        bed.advance(A_MINUTE).await;
        for n in 0..130 {
            assert_eq!(desks.get(format!("bad-{n}")).await.unwrap().unwrap().status, Status::Completed, "bad-{n}");
        }
    }
}

/// A sequence is not rolled back with a transaction, so it counts the tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_cannot_fire_is_tried_less_and_less_often() {
    let bed = desks().postgres().await;
    let runtime = runtime(&bed).await;
    runtime.machine::<Desk>().send("bad", Rest).await.unwrap();
    runtime.machine::<Desk>().settled("bad").await.unwrap();
    run(&bed, "create sequence tries").await;
    let body = "if new.key = 'bad' then perform nextval('tries'); raise 'this row is broken'; end if; return new;";
    run(&bed, format!("create function broken() returns trigger language plpgsql as $$ begin {body} end $$")).await;
    run(&bed, "create trigger broken before update on fsm_instances for each row execute function broken()").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let tries = run(&bed, "select last_value from tries").await.unwrap();
    runtime.shutdown().await.unwrap();
    assert!((2..=20).contains(&tries), "{tries} tries in 3 s after it was due");
    bed.skip_invariant_check();
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Post {
    /// It is sent to an instance that its own transaction has locked.
    is_crosswise: bool,
}

/// Everything that a verb can do while it holds a connection.
#[derive(Default)]
struct Desks(OnceLock<Handle<Desk>>);

#[verb(timeout = "50s")]
async fn posted(ctx: &mut Ctx<'_>, desks: Data<Arc<Desks>>, event: Post) -> Result {
    let (key, desks) = (ctx.key().to_owned(), desks.0.get().unwrap().clone());
    sqlx::query("insert into ledger values ($1)").bind(&key).execute(ctx.postgres().await?).await?;
    if event.is_crosswise {
        desks.send_in(ctx.postgres().await?, "mine", Note).await?;
        desks.send("mine", Note).await?;
        return Ok(());
    }
    ctx.once("receipt", async { Ok::<_, Failure>(key.clone()) }).await?;
    desks.send(format!("desk-{key}"), Note).await?;
    desks.send_many([(format!("desks-{key}"), Note)]).collect().await?.remove(0)?;
    assert!(desks.get(format!("desk-{key}")).await?.is_some());
    Ok(())
}

#[verb]
async fn written(ctx: &mut Ctx<'_>, desks: Data<Arc<Desks>>, _event: Note) -> Result {
    let desks = desks.0.get().unwrap().clone();
    sqlx::query("insert into ledger values ($1)").bind(ctx.key().to_owned()).execute(ctx.sqlite().await?).await?;
    desks.send("other", Note).await?;
    Ok(())
}

fsm! {
    machine Teller = "teller" {
        start posted | written;
        end posted, written;
    }
}

/// As many as may execute at the same time, and many more than there are connections.
const TELLERS: usize = 256;

#[tokio::test(flavor = "multi_thread")]
async fn verbs_with_transactions_of_their_own_delay_no_commit() {
    let bed = desks().postgres().await;
    run(&bed, "create table ledger (entry text primary key)").await;
    let desks = Arc::new(Desks::default());
    let builder = Runtime::builder().database(bed.url()).only::<Desk>().only::<Teller>().data(Arc::clone(&desks));
    let runtime = builder.concurrency(TELLERS as u32).start().await.unwrap();
    desks.0.set(runtime.machine::<Desk>()).unwrap_or_else(|_| panic!("it is set once"));
    let (tellers, plain) = (runtime.machine::<Teller>(), runtime.machine::<Desk>());
    let began = Instant::now();
    for sent in join_all((0..TELLERS).map(|n| tellers.send(format!("t-{n}"), Post { is_crosswise: false }).into_future())).await {
        sent.unwrap();
    }
    let mut took = Vec::new();
    for n in 0..100 {
        let began = Instant::now();
        plain.send(format!("plain-{n}"), Note).await.unwrap();
        took.push(began.elapsed());
    }
    for n in 0..TELLERS {
        let settled = tellers.settled(format!("t-{n}")).within(A_MINUTE).await.unwrap();
        assert_eq!((settled.status, settled.error), (Status::Completed, None));
    }
    let (p99, all) = (p99(took), began.elapsed());
    println!("99 of 100 plain sends took up to {p99:?}, and all {TELLERS} verbs {all:?}");
    assert!(p99 < Duration::from_secs(2), "99 of 100 plain sends took up to {p99:?}");
    assert!(all < Duration::from_secs(30), "all took {all:?}");
    assert_eq!(run(&bed, "select count(*) from ledger").await, Some(TELLERS as i64));
    runtime.shutdown().await.unwrap();
    assert_invariants_hold(&bed).await;
}

fn tellers(desks: &Arc<Desks>) -> TestBedBuilder {
    TestBed::builder().only::<Desk>().only::<Teller>().only::<SqlRunner>().data(Arc::clone(desks))
}

#[tokio::test]
async fn a_send_to_an_instance_that_the_verbs_own_transaction_holds_is_an_error_at_once() {
    let desks = Arc::new(Desks::default());
    let bed = tellers(&desks).postgres().await;
    desks.0.set(bed.machine::<Desk>()).unwrap_or_else(|_| panic!("it is set once"));
    run(&bed, "create table ledger (entry text primary key)").await;
    bed.machine::<Desk>().send("mine", Note).await.unwrap();
    bed.run_until_idle().await;
    let began = Instant::now();
    bed.machine::<Teller>().send("t", Post { is_crosswise: true }).await.unwrap();
    bed.run_until_idle().await;
    let error = bed.machine::<Teller>().get("t").await.unwrap().unwrap().error.unwrap();
    assert!(error.contains("`desk` `mine` is locked by this verb's own transaction"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    assert_invariants_hold(&bed).await;
}

mod a_send_beside_the_one_writer_of_sqlite_is_an_error_at_once {
    use super::*;

    async fn check(bed: &TestBed, desks: &Arc<Desks>) {
        desks.0.set(bed.machine::<Desk>()).unwrap_or_else(|_| panic!("it is set once"));
        run(bed, "create table ledger (entry text primary key)").await;
        let began = Instant::now();
        bed.machine::<Teller>().send("t", Note).await.unwrap();
        bed.run_until_idle().await;
        let error = bed.machine::<Teller>().get("t").await.unwrap().unwrap().error.unwrap();
        assert!(error.contains("`ctx.sqlite()`") && error.contains("`ctx.send`") && error.contains("`send_in`"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        assert_eq!(run(bed, "select count(*) from ledger").await, Some(0), "the attempt failed");
        assert_invariants_hold(bed).await;
    }

    #[tokio::test]
    async fn sqlite() {
        let desks = Arc::new(Desks::default());
        check(&tellers(&desks).sqlite().await, &desks).await;
    }

    #[tokio::test]
    async fn file() {
        let desks = Arc::new(Desks::default());
        let folder = crate::support::Folder::new("one-writer");
        check(&tellers(&desks).on(&folder.url("fsm.db")).await, &desks).await;
    }
}

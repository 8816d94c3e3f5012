//! Tests of the pruner's steps: they stay small for every kind of instance, and continue after a crash at any point.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;
use fsm_store::invariants::examine;
use fsm_store::lock;
use fsm_store::open::Store;
use fsm_store::testing::{on_each, rows};
use fsm_store::transfer::{self, Field};
use fsm_store::view;
use uuid::Uuid;

use super::{Pruner, PrunerPosition, StepSize};

const MACHINE: &str = "payment";
/// The time at which instances of these tests end, and the cutoff of the pruner.
const ENDED_AT: i64 = 1_000_000;
const CUTOFF: i64 = 2_000_000;

/// Rows to be inserted, in the format of an export.
#[derive(Default)]
struct Rows {
    calls: Vec<Vec<Field>>,
    others: Vec<(&'static str, Vec<Field>)>,
}

fn text(text: &str) -> Field {
    Field::Text(Some(text.to_owned()))
}
fn id(id: Uuid) -> Field {
    Field::Id(Some(id))
}
fn number(number: i64) -> Field {
    Field::Number(Some(number))
}
/// Ids in ascending order, all from before the cutoff.
fn next_id(n: &mut u128) -> Uuid {
    *n += 1;
    Uuid::from_u128(*n)
}

/// An instance, with the number of its transitions.
struct Made {
    id: Uuid,
    newest: Option<(Uuid, i64)>,
    version: i64,
    n: u128,
}

impl Made {
    fn new(place: u128) -> Made {
        let mut n = place << 40;
        Made { id: next_id(&mut n), newest: None, version: 0, n }
    }

    /// Adds a call with `failures` failed attempts and one that succeeded. If `caught` is `(n, by)`, the call `by` caught it, and an
    /// operator's retry began attempt `n`.
    fn call(&mut self, rows: &mut Rows, failures: i64, caught: Option<(i64, Uuid)>) -> Uuid {
        let call = next_id(&mut self.n);
        let previous = self.newest.map(|(call, _)| call);
        for attempt in 1..=failures + 1 {
            let before = caught.filter(|(from, _)| attempt >= *from).map(|(_, by)| by).or(previous);
            let state = if attempt > failures { "success" } else { "error" };
            rows.calls.push(self.attempt(call, attempt, "paid", state, before));
        }
        self.newest = Some((call, failures + 1));
        self.version += 1;
        call
    }

    fn attempt(&self, call: Uuid, attempt: i64, verb: &str, state: &str, previous: Option<Uuid>) -> Vec<Field> {
        let from = if self.version == 0 { Field::Text(None) } else { text("paid") };
        let payload = Field::Bytes((attempt == 1).then(|| b"{}".to_vec()));
        let policy = r#"{"max_attempts":null,"min_us":0,"max_us":0,"backoff":1.0}"#;
        let event = if verb == "paid" { "Paid" } else { "Caught<Paid>" };
        let mut row = vec![id(call), number(attempt), id(self.id), text(MACHINE), text(verb), text(event), payload, from, text("paid")];
        row.extend([text(state), number(100), number(100), Field::Number(None), number(0), number(0), text(policy)]);
        row.extend([
            number(100),
            id(Uuid::from_u128(7)),
            number(100),
            number(100),
            Field::Text(None),
            Field::Id(previous),
            number(0),
            Field::Number(None),
        ]);
        row
    }

    fn once(&mut self, rows: &mut Rows, call: Uuid, count: i64) {
        let instance = self.id;
        let row = |n| vec![id(call), text(&format!("effect-{n:06}")), id(instance), Field::Bytes(Some(b"1".to_vec())), number(100)];
        rows.others.extend((0..count).map(|n| ("once", row(n))));
    }

    fn notes(&mut self, rows: &mut Rows, kind: &str, call: Option<Uuid>, count: i64) {
        let row = || vec![id(self.id), number(100), text(kind), Field::Id(call), Field::Text(None), Field::Text(None)];
        rows.others.extend((0..count).map(|_| ("history", row())));
    }

    fn requests(&mut self, rows: &mut Rows, count: i64) {
        for n in 0..count {
            let call = next_id(&mut self.n);
            let row = vec![id(self.id), text(&format!("d-{n:06}")), text("Paid"), Field::Bytes(Some(vec![1])), id(call), number(100)];
            rows.others.push(("requests", row));
        }
    }

    fn row(&self, key: &str) -> Vec<Field> {
        let state = if self.version == 0 { Field::Text(None) } else { text("paid") };
        let (call, attempt) = self.newest.unzip();
        let state_of_attempt = Field::Text(call.is_some().then(|| "success".to_owned()));
        let mut row =
            vec![id(self.id), text(MACHINE), text(key), text("completed"), state, Field::Flag(false), number(self.version), number(0)];
        row.extend([Field::Bytes(None), Field::Text(None), number(0), number(0), number(100), number(ENDED_AT), Field::Number(None)]);
        row.push(number(0));
        row.extend([Field::Flag(false), Field::Id(call), Field::Number(attempt), state_of_attempt]);
        row.extend([
            text("paid"),
            text("Paid"),
            Field::Bytes(None),
            text("paid"),
            text("paid"),
            number(100),
            number(100),
            Field::Number(None),
        ]);
        row.extend([
            Field::Number(None),
            number(0),
            number(0),
            Field::Text(None),
            number(100),
            id(Uuid::from_u128(7)),
            number(100),
            number(100),
        ]);
        row.extend([Field::Text(None), Field::Id(None), number(0)]);
        // Without a limit, a priority, progress and a family.
        row.extend([Field::Text(None), Field::Text(None), Field::Number(None), Field::Bytes(None), Field::Number(None)]);
        row.extend([Field::Id(None), Field::Number(None), Field::Text(None), Field::Text(None), Field::Text(None), Field::Text(None)]);
        row.extend([Field::Text(None), Field::Number(None), Field::Text(None)]);
        row
    }

    async fn write(&self, store: &Store, key: &str, rows: Rows) {
        let table = |name: &str| (0..transfer::TABLES).find(|table| transfer::name(*table) == name).unwrap();
        let mut tx = store.begin().await.unwrap();
        transfer::write(&mut tx.conn(), table("instances"), &[self.row(key)]).await.unwrap();
        for some in rows.calls.chunks(1000) {
            transfer::write(&mut tx.conn(), table("async_calls"), some).await.unwrap();
        }
        for name in ["once", "history", "requests"] {
            let of_it: Vec<_> = rows.others.iter().filter(|(of, _)| *of == name).map(|(_, row)| row.clone()).collect();
            for some in of_it.chunks(1000) {
                transfer::write(&mut tx.conn(), table(name), some).await.unwrap();
            }
        }
        tx.commit().await.unwrap();
    }
}

async fn assert_healthy(store: &Store) {
    let mut examined = examine(&mut store.reader().await.unwrap().conn()).await.unwrap();
    examined.retain(|invariant| !invariant.holds());
    assert!(examined.is_empty(), "{examined:#?}");
}

fn pruner(store: &Store) -> Pruner<'_> {
    Pruner { store, cutoff: Timestamp::from_micros(CUTOFF) }
}

fn place(most: u32) -> PrunerPosition {
    PrunerPosition { step_size: StepSize::at_most(most), ..PrunerPosition::default() }
}

/// Runs the pruner in a process that crashes after `statements` statements. Returns true if it finished.
async fn lives(store: &Store, statements: u32, most: u32) -> bool {
    let failpoint = store.failpoint();
    failpoint.trigger_after(statements);
    let mut place = place(most);
    let lived = tokio::select! {
        biased;
        () = failpoint.triggered() => false,
        done = pruner(store).prune(&mut place, &[MACHINE]) => done.map(|_| true).unwrap(),
    };
    failpoint.reset();
    lived
}

/// Inserts instances with many rows of every kind.
async fn fill(store: &Store) {
    let (mut one, mut all) = (Made::new(1), Rows::default());
    let long = one.call(&mut all, 230, None);
    one.once(&mut all, long, 110);
    one.write(store, "one long call", all).await;

    let (mut chain, mut all) = (Made::new(2), Rows::default());
    for _ in 0..160 {
        chain.call(&mut all, 0, None);
    }
    chain.notes(&mut all, "late", None, 110);
    chain.requests(&mut all, 20);
    chain.write(store, "a long chain", all).await;

    // A call that failed, was caught, and was retried by an operator. In the second instance its catch verb's call is long.
    for (place, failures) in [(3, 1), (4, 105)] {
        let (mut caught, mut all) = (Made::new(place), Rows::default());
        caught.call(&mut all, 0, None);
        let by = Uuid::from_u128((place << 40) + 1000);
        let call = caught.call(&mut all, failures, Some((2, by)));
        for attempt in 1..=failures {
            all.calls.push(caught.attempt(by, attempt, "found", if attempt == failures { "success" } else { "error" }, Some(call)));
        }
        caught.notes(&mut all, "retried", Some(call), failures);
        caught.call(&mut all, 0, None);
        caught.write(store, &format!("caught {place}"), all).await;
    }
    for place in 5..30 {
        let (mut small, mut all) = (Made::new(place), Rows::default());
        let call = small.call(&mut all, 0, None);
        small.once(&mut all, call, 1);
        small.requests(&mut all, 1);
        small.write(store, &format!("small {place}"), all).await;
    }
    Made::new(50).write(store, "without a call", Rows::default()).await;
}

/// The process crashes before and after each statement, and the next process knows nothing about it.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_process_dies_a_step_is_small_and_the_next_one_goes_on() {
    const MOST: u32 = 100;
    on_each(async |store| {
        fill(&store).await;
        assert_healthy(&store).await;
        let (mut left, mut statements, mut steps) = (rows(&store).await, 0, 0);
        while !lives(&store, statements, MOST).await {
            let now = rows(&store).await;
            assert!(left - now <= u64::from(MOST), "a step deleted {} rows", left - now);
            if now < left {
                assert_healthy(&store).await;
                steps += 1;
                // The next step starts from the beginning, and its commit needs about as many statements.
                statements = statements.saturating_sub(12);
            }
            left = now;
            statements += 1;
        }
        assert_eq!(rows(&store).await, 0);
        assert!(steps > 10, "{steps} steps");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tens_of_thousands_of_attempts_go_in_steps_and_what_is_locked_stays() {
    on_each(async |store| {
        for (place, key, failures) in [(1, "o-1", 20_000), (2, "o-2", 3)] {
            let (mut one, mut all) = (Made::new(place), Rows::default());
            one.call(&mut all, failures, None);
            one.write(&store, key, all).await;
        }
        let late = Pruner { cutoff: Timestamp::from_micros(ENDED_AT), ..pruner(&store) };
        assert_eq!(late.prune(&mut place(1000), &[MACHINE]).await.unwrap(), 0, "they ended just then");
        assert_eq!(pruner(&store).prune(&mut place(1000), &["another"]).await.unwrap(), 0, "nobody serves them here");
        let all = rows(&store).await;
        if store.is_postgres() {
            let mut tx = store.begin().await.unwrap();
            lock::instances_by_id(&mut tx.conn(), &[InstanceId(Made::new(2).id)]).await.unwrap();
            assert_eq!(pruner(&store).prune(&mut place(1000), &[MACHINE]).await.unwrap(), 1, "the other one is locked");
            tx.rollback().await.unwrap();
            assert_eq!(all - rows(&store).await, 20_002);
        }
        pruner(&store).prune(&mut place(1000), &[MACHINE]).await.unwrap();
        assert_eq!(rows(&store).await, 0);
        for key in ["o-1", "o-2"] {
            assert_eq!(view::find(&mut store.reader().await.unwrap().conn(), MACHINE, key).await.unwrap(), None);
        }
    })
    .await;
}

/// One row that cannot be deleted delays no other instance.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_cannot_be_deleted_keeps_no_other() {
    on_each(async |store| {
        for place in 1..=8 {
            let (mut one, mut all) = (Made::new(place), Rows::default());
            one.call(&mut all, if place % 2 == 0 { 300 } else { 0 }, None);
            one.write(&store, &format!("o-{place}"), all).await;
        }
        let mut tx = store.begin().await.unwrap();
        tx.conn().script(if store.is_postgres() { GUARD_POSTGRES } else { GUARD_SQLITE }).await.unwrap();
        tx.commit().await.unwrap();
        let mut left = Vec::new();
        // PostgreSQL may hold the locks of a failed step until it notices that the connection is closed. A later run finds the rows
        // unlocked.
        for _ in 0..200 {
            pruner(&store).prune(&mut place(100), &[MACHINE]).await.unwrap();
            left.clear();
            for place in 1..=8 {
                let key = format!("o-{place}");
                left.extend(view::find(&mut store.reader().await.unwrap().conn(), MACHINE, &key).await.unwrap().map(|_| place));
            }
            if left.len() == 2 {
                break;
            }
        }
        assert_eq!(left, [3, 4]);
        assert_healthy(&store).await;
    })
    .await;
}

const GUARD_SQLITE: &str = "create trigger guard before delete on fsm_instances when old.key in ('o-3', 'o-4')
    begin select raise(abort, 'it stays'); end";
const GUARD_POSTGRES: &str = "create function guard() returns trigger language plpgsql as
    $$ begin if old.key in ('o-3', 'o-4') then raise exception 'it stays'; end if; return old; end $$;
    create trigger guard before delete on fsm_instances for each row execute function guard()";

//! Tests of the checker: it finds nothing after a correct run, and finds each mistake that is then put into the data.

#![allow(clippy::unwrap_used, reason = "a test ends at its first surprise")]
use std::sync::Arc;
use std::time::Duration;

use crate::basket::item_key;
use crate::bell::moment;
use crate::check::check;
use crate::child::{Spec, start};
use crate::ledger::{self, Ledger, Line, ProcessLedger};
use crate::load::{Caller, Load, Sends};
use crate::machine::{Account, Totals};
use crate::random::Random;
use crate::rows::{Attempt, Db, Instance, Rows};
use crate::test_server::Folder;
use crate::{child, sql};

/// The ledgers and rows that a runtime and its sender left, on SQLite.
async fn correct_run() -> (Vec<ProcessLedger>, Rows) {
    let mut folder = Folder::new(&format!("check-{}", uuid::Uuid::new_v4().simple())).unwrap();
    let url = format!("sqlite://{}/faults.db", folder.path().display());
    fsm::Client::connect(&url).await.unwrap();
    let mut db = Db::connect(&url).await.unwrap();
    db.run(sql::MAKE_BOOKS).await.unwrap();
    let load = Load { callers: 1, books: 2, wagers: 4, tills: 2, ms: 0, ..Load::default() };
    let spec: Spec = child::Spec {
        name: "node".into(),
        url,
        folder: folder.path().to_owned(),
        runs_verbs: true,
        load: load.clone(),
        lease: Duration::from_secs(30),
        concurrency: 8,
        connections: 1,
        deadline: Duration::from_secs(30),
        inbox: 1000,
        is_in_a_container: false,
        has_schedule: true,
        clock_ahead_s: 0,
        threads: 1,
        seed: 3,
    };
    let ledger = Ledger::open(folder.path(), &spec.name).unwrap();
    let runtime = start(&spec, &ledger).await.unwrap();
    let stops_sending = Arc::default();
    let accounts = runtime.machine::<Account>();
    let (purchases, baskets) = (runtime.machine(), runtime.machine());
    let caller = Caller {
        accounts,
        purchases,
        baskets,
        ledger,
        load,
        random: Random::new(spec.seed),
        name: "node-0".into(),
        stops_sending: Arc::clone(&stops_sending),
    };
    let filling = Caller { load: Load { sends: Sends::Baskets, ..caller.load.clone() }, name: "node-1".into(), ..caller.clone() };
    let sending = [tokio::spawn(caller.run()), tokio::spawn(filling.run())];
    while db.number(sql::TRANSITIONS).await.unwrap() < 300
        || db.number(sql::ASSEMBLED).await.unwrap() < 3
        || db.number(sql::MOMENTS).await.unwrap() < 3
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stops_sending.store(true, std::sync::atomic::Ordering::Relaxed);
    for caller in sending {
        caller.await.unwrap().unwrap();
    }
    db.run(sql::PAUSE_SCHEDULES).await.unwrap();
    while db.number(sql::UNSETTLED).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    runtime.shutdown().await.unwrap();
    folder.is_kept = false;
    (ledger::read_all(folder.path()).unwrap(), db.read_all().await.unwrap())
}

/// A mistake that is put into correct data, and the checker's finding.
struct Mistake {
    name: &'static str,
    insert: fn(&mut Vec<ProcessLedger>, &mut Rows),
    finding: &'static str,
}

macro_rules! mistakes {
    ($($name:literal: |$ledgers:pat_param, $rows:pat_param| $insert:expr => $finding:literal;)*) => {
        &[$(Mistake { name: $name, insert: |$ledgers, $rows| { $insert; }, finding: $finding }),*]
    };
}

const MISTAKES: &[Mistake] = mistakes! {
    "an acknowledged event is not there":
        |_, rows| { let call = first(rows, "moved").call.clone(); rows.attempts.retain(|one| one.call != call) }
        => "what was acknowledged is there";
    "an acknowledged event was never taken": |_, rows| first(rows, "moved").state = "cancelled".into() => "acknowledged and never taken";
    "a dedup id gets another call": |ledgers, _| answer_with_another_call(ledgers) => "the same dedup id always got the same call";
    "an event is taken twice":
        |_, rows| { let again = first(rows, "moved").clone(); rows.attempts.push(Attempt { call: "another".into(), ..again }) }
        => "is taken twice";
    "nobody asked for an event":
        |ledgers, _| ledgers[0].lines.retain(|line| !matches!(line, Line::SendBegun { .. })) => "comes from nowhere";
    "a call succeeds twice":
        |_, rows| { let again = first(rows, "moved").clone(); rows.attempts.push(Attempt { number: again.number + 1, ..again }) }
        => "no call succeeds twice";
    "events are taken in another order":
        |_, rows| some_record(rows, |record| record.taken.len() > 2).taken.swap(0, 1) => "events of one instance are taken in order";
    "an execution has no attempt":
        |ledgers, _| run_once_more(ledgers, "moved", 9) => "which was never granted";
    "an attempt is executed twice": |ledgers, _| run_once_more(ledgers, "moved", 1) => "was executed twice";
    "money moves without an attempt":
        |ledgers, _| ledgers[0].lines.push(Line::MoneyMoved { call: "none".into(), attempt: 1, cents: 5 }) => "which did not run";
    "another process runs in a session":
        |ledgers, _| { let line = remove_a_start(ledgers); ledgers.push(ProcessLedger { process: "other".into(), lines: vec![line] }) }
        => "a session belongs to one process";
    "nobody executed what succeeded": |ledgers, _| remove_a_start(ledgers) => "what succeeded was executed";
    "a success is recorded as a failure": |_, rows| first(rows, "moved").state = "error".into() => "no success is recorded as a failure";
    "a verb without a policy runs twice": |ledgers, _| run_once_more(ledgers, "wagered", 2) => "without a policy nothing runs twice";
    "a verb's own row is missing": |_, rows| rows.books.pop() => "records and rows of the verbs' own add up";
    "a verb's own row is there twice":
        |_, rows| rows.books.extend(rows.books.last().cloned()) => "records and rows of the verbs' own add up";
    "a verb that did not succeed has a row": |_, rows| rows.books.push(("none".into(), 1)) => "did not succeed, and has a row";
    "a record has too much":
        |_, rows| some_instance(rows, |one| one.machine == "account").record.get_or_insert_default().cents += 1 => "add up";
    "a receipt is missing":
        |_, rows| rows.instances.retain(|_, one| one.machine != "receipt") => "each closed account has one receipt";
    "a till counts wrong":
        |_, rows| some_instance(rows, |one| one.machine == "till").record.as_mut().unwrap().cents += 1 => "each till counted what it was sent";
    "a basket is not called after its last item":
        |_, rows| { let basket = some_instance(rows, |one| one.machine == "basket" && one.status == "completed"); basket.status = "running".into() }
        => "each basket was called after its last item";
    "a basket is called before its last item":
        |_, rows| item_of_an_assembled_basket(rows).state = None
        => "each basket was called after its last item";
    "an item of a basket is missing":
        |_, rows| { let key = item_of_an_assembled_basket(rows).key.clone(); rows.instances.retain(|_, one| one.key != key) }
        => "each basket was called after its last item";
    "a moment of the schedule is missing":
        |_, rows| {
            let bells = rows.instances.values().filter(|one| one.machine == "bell").filter_map(|bell| moment(&bell.key));
            let (first, last) = (bells.clone().min().unwrap(), bells.max().unwrap());
            rows.instances.retain(|_, one| one.machine != "bell" || [Some(first), Some(last)].contains(&moment(&one.key)));
        }
        => "each moment of the schedule was sent once";
    "one call more than its limit runs at once":
        |ledgers, _| run_beside(ledgers, "cranes", 3) => "no more calls ran at once than their limit admits";
    "two calls of a value run at once":
        |ledgers, _| run_beside(ledgers, "yard yard-0", 1) => "calls ran under yard yard-0";
    "a place of a limit is leaked": |_, rows| rows.held.push("yard=yard-0".into()) => "no place of a limit is held in the end";
    "an instance does not end":
        |_, rows| some_instance(rows, |one| one.state.as_deref() == Some("closed")).status = "running".into()
        => "each instance came to its end";
    "an instance is in error for nothing":
        |_, rows| some_instance(rows, |one| one.state.as_deref() == Some("closed")).status = "error".into()
        => "is in error without a wager lost";
    "an attempt stays executing": |_, rows| first(rows, "moved").state = "executing".into() => "is executing";
    "a sender gets an answer that must never be":
        |ledgers, _| ledgers[0].lines.push(Line::Unexpected { says: "not taken".into() }) => "no process heard what must never be heard";
    "an acknowledged event is rejected":
        |_, rows| rows.rejected.insert("call".into(), "it did not fit".into()) => "was rejected";
};

fn first<'r>(rows: &'r mut Rows, verb: &str) -> &'r mut Attempt {
    rows.attempts.iter_mut().find(|attempt| attempt.verb == verb && attempt.state == "success").unwrap()
}

fn some_instance(rows: &mut Rows, is_it: impl Fn(&Instance) -> bool) -> &mut Instance {
    rows.instances.values_mut().find(|one| is_it(one)).unwrap()
}

fn some_record(rows: &mut Rows, is_it: fn(&Totals) -> bool) -> &mut Totals {
    rows.instances.values_mut().filter_map(|one| one.record.as_mut()).find(|record| is_it(record)).unwrap()
}

/// Items of a basket that was cancelled need not be packed.
fn item_of_an_assembled_basket(rows: &mut Rows) -> &mut Instance {
    let has_items = |one: &Instance| one.record.as_ref().is_some_and(|record| !record.taken.is_empty());
    let assembled = some_instance(rows, |one| one.machine == "basket" && one.state.as_deref() == Some("assembled") && has_items(one));
    let key = item_key(&assembled.key, assembled.record.as_ref().unwrap().taken[0]);
    rows.instances.values_mut().find(|one| one.machine == "item" && one.key == key).unwrap()
}

fn answer_with_another_call(ledgers: &mut [ProcessLedger]) {
    let answer = ledgers[0].lines.iter().find(|line| matches!(line, Line::Acknowledged { dedup: Some(_), .. })).cloned();
    let Some(Line::Acknowledged { key, n, dedup, outcome, .. }) = answer else { panic!("some were sent under an id") };
    ledgers[0].lines.push(Line::Acknowledged { key, n, call: "another".into(), dedup, outcome });
}

fn run_once_more(ledgers: &mut [ProcessLedger], verb: &str, attempt: u32) {
    let ran = ledgers[0].lines.iter().find(|line| matches!(line, Line::AttemptStarted { verb: ran, .. } if ran == verb)).cloned();
    let Some(Line::AttemptStarted { key, call, verb, .. }) = ran else { panic!("`{verb}` ran") };
    ledgers[0].lines.push(Line::AttemptStarted { key, call, attempt, verb });
}

/// So many other calls run while one runs under this limit. Their process was killed.
fn run_beside(ledgers: &mut Vec<ProcessLedger>, limit: &str, count: u32) {
    let began = |line: &&Line| matches!(line, Line::LimitedWorkBegan { under, .. } if under == limit);
    let Some(Line::LimitedWorkBegan { at_us, under, .. }) = ledgers[0].lines.iter().find(began).cloned() else {
        panic!("{limit} was used")
    };
    let other = |n| Line::LimitedWorkBegan { call: format!("other-{n}"), attempt: 1, under: under.clone(), at_us };
    let mut lines: Vec<_> = (0..count).map(other).collect();
    lines.push(Line::LimitedWorkEnded { call: "last".into(), attempt: 1, at_us: at_us + 1_000 });
    ledgers.push(ProcessLedger { process: "other".into(), lines });
}

fn remove_a_start(ledgers: &mut [ProcessLedger]) -> Line {
    let index = ledgers[0].lines.iter().position(|line| matches!(line, Line::AttemptStarted { .. })).unwrap();
    ledgers[0].lines.remove(index)
}

#[tokio::test]
async fn a_run_without_a_fault_is_whole_and_every_mistake_that_is_planted_is_found() {
    let (ledgers, rows) = correct_run().await;
    assert_eq!(check(&ledgers, &rows), Vec::<String>::new());
    for verb in
        ["opened", "wagered", "moved", "booked", "closed", "issued", "counted", "filled", "packed", "assembled", "rung", "lifted", "parked"]
    {
        assert!(rows.attempts.iter().any(|attempt| attempt.verb == verb && attempt.state == "success"), "`{verb}` ran");
    }
    for Mistake { name, insert, finding } in MISTAKES {
        let (mut ledgers, mut rows) = (ledgers.clone(), rows.clone());
        insert(&mut ledgers, &mut rows);
        let found = check(&ledgers, &rows).join("\n");
        assert!(found.contains(finding), "{name}: found is {found:?}");
    }
}

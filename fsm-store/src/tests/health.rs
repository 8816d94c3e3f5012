//! A healthy database breaks no invariant, and a row that was damaged by hand is found.

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, Note, NoteKind, Payload, Request, Timer, TimerChange, Waits};
use fsm_core::ids::TimerId;
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::Event;
use fsm_core::priority::Priority;
use fsm_core::retry::{Next, RetryAdvice, RetryState};
use uuid::Uuid;

use super::samples::{at, attempt, beginning, call, close, opened, opening, session, success, written};
use crate::invariants::examine;
use crate::machines;
use crate::open::Store;
use crate::testing::on_each;

const DEFINITION: &str = r#"{"name":"payment","verbs":[],"edges":[
    {"from":null,"event":"Created","to":"created"},{"from":"created","event":"Paid","to":"paid"}],"ends":[]}"#;

async fn broken(store: &Store) -> Vec<&'static str> {
    let mut examined = examine(&mut store.reader().await.unwrap().conn()).await.unwrap();
    assert_eq!(examined.len(), 23, "invariants that hold are listed too");
    examined.retain(|invariant| !invariant.holds());
    examined.iter().for_each(|invariant| println!("{invariant:?}"));
    examined.iter().map(|invariant| invariant.number).collect()
}

/// Three instances: one rests with a timer after a failure, a retry and two transitions, one is open with an event in its inbox, one is in
/// error.
async fn lived_in(store: &Store) {
    let mut tx = store.begin().await.unwrap();
    machines::remember(&mut tx.conn(), "payment", "h", DEFINITION, at(1)).await.unwrap();
    tx.commit().await.unwrap();

    let me = session();
    let begun = beginning("rests", Some(me));
    let first = begun.open.as_ref().unwrap().attempt.clone();
    let Next::Again { wait, retry_state } = first.retry_state.after(RetryAdvice::Default, at(200), 0.0) else { panic!("a retry is left") };
    let mut second = Attempt::clone(&first);
    (second.number, second.created_at, second.scheduled_at, second.retry_state) = (2, at(200), at(200) + wait, *retry_state);
    second.started_at = Some(second.scheduled_at);
    let mut again = opening(begun.instance.clone(), second.clone(), Payload::Bytes(vec![]));
    again.open.as_mut().unwrap().payload = None;
    again.close = Some(close(&first, AttemptState::Error));
    let mut moved = success(&again);
    moved.close.as_mut().unwrap().finished_at = at(300);
    let mut third = attempt(&moved.instance, call(), Some(me));
    (third.event, third.to, third.verb) = ("Paid".into(), "paid".into(), "paid".into());
    (third.created_at, third.scheduled_at, third.started_at) = (at(300), at(300), Some(at(300)));
    let onward = opening(moved.instance.clone(), third, Payload::Bytes(vec![]));
    let mut paid = success(&onward);
    paid.close.as_mut().unwrap().finished_at = at(400);
    let timer = |state: Option<&str>| Timer {
        id: TimerId(Uuid::now_v7()),
        instance: paid.instance.id,
        state: state.map(Into::into),
        event: Event { name: "Timeout".into(), payload: vec![] },
        due_at: at(900),
        priority: Priority::Normal,
    };
    let timers = [timer(Some("paid")), timer(None)].map(TimerChange::Set).to_vec();
    let paid = Changes { timers, ..paid };
    for changes in [&begun, &again, &moved, &onward, &paid] {
        written(store, &[changes]).await;
    }

    let mut open = beginning("open", Some(me));
    open.request = Some(Request { dedup: "d".into(), event: None, digest: vec![], call: open.instance.newest.unwrap().0, at: at(100) });
    written(store, &[&open]).await;
    let mut waits = Changes::of(Instance { inbox_tail: 1, ..open.instance.clone() });
    waits.waits = Some(Waits {
        position: 0,
        call: call(),
        event: Event { name: "Paid".into(), payload: vec![] },
        priority: Priority::Normal,
        forecast: None,
    });
    written(store, &[&waits]).await;

    let mut failing = beginning("failed", Some(me));
    opened(&mut failing).retry_state = RetryState::fresh(None, at(100));
    let mut failed = Changes::of(failing.instance.clone());
    failed.instance = Instance { status: Status::Error, error: Some("no".into()), is_open: false, ..failed.instance };
    failed.close = Some(close(&failing.open.as_ref().unwrap().attempt, AttemptState::Error));
    failed.notes.push(Note { instance: failed.instance.id, at: at(1), kind: NoteKind::Late, call: None, detail: None, actor: None });
    written(store, &[&failing]).await;
    written(store, &[&failed]).await;
}

async fn after(store: &Store, script: String) -> Vec<&'static str> {
    let mut tx = store.begin().await.unwrap();
    tx.conn().script(script.leak()).await.unwrap();
    tx.commit().await.unwrap();
    broken(store).await
}

const RESTS: &str = "(select instance_id from fsm_instances where key = 'rests')";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_by_the_write_path_is_healthy() {
    on_each(async |store| {
        assert_eq!(broken(&store).await, [""; 0]);
        lived_in(&store).await;
        assert_eq!(broken(&store).await, [""; 0]);
    })
    .await;
}

/// A script for each invariant that breaks it. Some scripts break other invariants too.
fn scripts() -> Vec<(&'static str, String)> {
    let newest = "call_id = (select call_id from fsm_instances where key = 'rests')";
    let copy = |attempt: &str, state: &str, instance: &str| {
        format!(
            "insert into fsm_async_calls select call_id, {attempt}, {instance}, machine, verb, event, payload, from_state, to_state, '{state}',
             created_at, scheduled_at, remaining_attempts, backoff, max_backoff, retry, first_at, snoozes, worker, started_at, finished_at, error,
             previous, priority from fsm_async_calls where {newest} and attempt = 1"
        )
    };
    let waiting = |call: &str, due_at: &str| {
        format!(
            "insert into fsm_outbox (sender, machine, key, call_id, event, payload, created_at, due_at, tries)
             select instance_id, machine, 'rests', {call}, event, payload, 1, {due_at}, 0 from fsm_timers limit 1"
        )
    };
    vec![
        ("I1", "update fsm_instances set is_open = not is_open where key = 'rests'".into()),
        ("I1", "update fsm_instances set verb = null where key = 'open'".into()),
        ("I1", "update fsm_instances set attempt_state = 'lost' where key = 'open'".into()),
        ("I2", "update fsm_instances set is_open = true, attempt_state = 'executing' where key = 'failed'".into()),
        ("I2", format!("update fsm_async_calls set call_id = (select call_id from fsm_instances where key = 'open') where {newest}")),
        ("I3", copy("2", "success", "instance_id")),
        ("I4", "update fsm_instances set attempt_state = 'lost' where key = 'failed'".into()),
        ("I4", format!("delete from fsm_async_calls where {newest}")),
        ("I5", "update fsm_instances set status = 'running' where key = 'failed'".into()),
        ("I5", "update fsm_instances set status = 'error' where key = 'open'".into()),
        ("I6", "update fsm_instances set version = version + 1 where key = 'rests'".into()),
        ("I6", "update fsm_instances set state = 'created' where key = 'rests'".into()),
        ("I7", format!("update fsm_async_calls set from_state = 'elsewhere' where {newest}")),
        ("I7", format!("update fsm_async_calls set previous = null where {newest}")),
        ("I8", format!("update fsm_async_calls set event = 'Other' where {newest}")),
        ("I9", format!("update fsm_async_calls set attempt = 2 where {newest}")),
        ("I10", format!("update fsm_async_calls set retry = null, state = 'lost' where instance_id = {RESTS}")),
        ("I11", format!("update fsm_async_calls set scheduled_at = 205, started_at = 205 where attempt = 2 and instance_id = {RESTS}")),
        ("I11", format!("update fsm_async_calls set scheduled_at = 301 where {newest}")),
        ("I12", format!("update fsm_async_calls set finished_at = 1 where {newest}")),
        ("I13", "delete from fsm_inbox".into()),
        ("I13", "update fsm_inbox set position = 1".into()),
        ("I13", "update fsm_instances set status = 'completed' where key = 'open'".into()),
        ("I14", "delete from fsm_instances where key = 'open'".into()),
        (
            "I14",
            format!(
                "insert into fsm_search (instance_id, name, machine, key, value) values ({RESTS}, 'customer', 'payment', 'other', 'c')"
            ),
        ),
        ("I12", "update fsm_instances set finished_at = 200 where key = 'open'".into()),
        ("I15", "update fsm_instances set worker = null where key = 'open'".into()),
        ("I18", "update fsm_instances set due_at = 7 where key = 'open'".into()),
        ("I18", "update fsm_instances set due_at = scheduled_at where key = 'rests'".into()),
        ("I20", "update fsm_instances set waits_for = 'stripe' where key = 'rests'".into()),
        ("I20", "update fsm_instances set runs_under = 'stripe' where key = 'rests'".into()),
        ("I23", "update fsm_instances set status = 'gone' where key = 'rests'".into()),
        ("I23", "update fsm_instances set family = 'gone', family_group = 1 where key = 'rests'".into()),
        ("I23", format!("update fsm_async_calls set state = 'gone' where {newest}")),
        ("I19", "delete from fsm_session_log".into()),
        ("I19", "update fsm_session_log set session_id = (select instance_id from fsm_instances where key = 'open')".into()),
        ("I15", format!("update fsm_async_calls set worker = null where {newest}")),
        ("I16", "update fsm_timers set state = 'created' where state = 'paid'".into()),
        ("I16", "update fsm_instances set status = 'cancelled' where key = 'rests'".into()),
        ("I17", waiting("timer_id", "1")),
        ("I17", waiting("instance_id", "null")),
        ("I21", "update fsm_instances set family = 'open', family_group = 1 where key = 'rests'".into()),
        ("I21", format!("update fsm_instances set parent = {RESTS} where key = 'open'")),
        (
            "I22",
            format!(
                "update fsm_instances set family = 'open', family_group = 1 where key = 'rests';
                 update fsm_instances set parent = {RESTS}, parent_group = 1, attachment = 'attached', status = 'cancelled', updated_at = -100000000
                 where key = 'failed';
                 insert into fsm_machines (machine, hash, definition, first_seen_at)
                 select i.machine, 'x', '{{\"edges\":[{{\"from\":\"' || i.state || '\",\"event\":\"ChildrenEnded\"}}]}}', 1
                 from fsm_instances i
                 where i.key = 'rests'"
            ),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_broken_by_hand_is_found() {
    for (invariant, script) in scripts() {
        on_each(async |store| {
            lived_in(&store).await;
            let found = after(&store, script.clone()).await;
            assert!(found.contains(&invariant), "{invariant} is not among {found:?} after {script}");
        })
        .await;
    }
}

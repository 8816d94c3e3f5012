//! Values to write to the databases of the tests.

use std::sync::Arc;
use std::time::Duration;

use fsm_core::call::{Attempt, AttemptState};
use fsm_core::changes::{Changes, Close, Note, NoteKind, Open, Payload, Request, Timer, TimerChange, Waits};
use fsm_core::commit::written::Written;
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::outcome::Event;
use fsm_core::priority::Priority;
use fsm_core::process::ProcessIdentity;
use fsm_core::retry::{Retry, RetryState};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use crate::open::Store;
use crate::sessions::Lease;
use crate::write::write;

pub(super) fn at(us: i64) -> Timestamp {
    Timestamp::from_micros(us)
}

pub(super) fn session() -> SessionId {
    SessionId(Uuid::new_v4())
}

pub(super) fn process(host: &str, pid: u32) -> ProcessIdentity {
    ProcessIdentity { host: host.to_owned(), pid, place: None }
}

/// A lease with a duration of 500 µs that ends at `until`, after a heartbeat at `now`.
pub(super) fn lease(session: SessionId, now: i64, until: i64) -> Lease {
    Lease { session, now: at(now), duration: Duration::from_micros(500), until: at(until) }
}

pub(super) fn call() -> CallId {
    CallId(Uuid::now_v7())
}

pub(super) fn policy() -> Retry {
    Retry {
        max_attempts: Some(3),
        min: Duration::from_micros(10),
        max: Duration::from_micros(40),
        backoff: 2.0,
        jitter: 0.0,
        within: None,
        give_up_on: vec!["Fraud".into()],
        give_up_if: None,
        delay: None,
        catch: None,
    }
}

pub(super) fn instance(key: &str) -> Instance {
    Instance::new(InstanceId(Uuid::now_v7()), "payment", key, at(100))
}

/// The first attempt of a call, due at 100: scheduled, or executing in a session since then.
pub(super) fn attempt(instance: &Instance, call: CallId, worker: Option<SessionId>) -> Attempt {
    Attempt {
        call,
        number: 1,
        instance: instance.id,
        machine: instance.machine.clone(),
        verb: "created".into(),
        event: "Created".into(),
        from: instance.state.clone(),
        to: "created".into(),
        state: if worker.is_some() { AttemptState::Executing } else { AttemptState::Scheduled },
        held: false,
        created_at: at(100),
        scheduled_at: at(100),
        retry_state: RetryState::fresh(Some(policy()), at(100)),
        worker,
        started_at: worker.map(|_| at(100)),
        finished_at: None,
        error: None,
        previous: instance.newest.map(|(call, _)| call),
        priority: Priority::Normal,
        limit: None,
    }
}

/// The attempt that begins, for the test to change.
pub(super) fn opened(changes: &mut Changes) -> &mut Attempt {
    Arc::make_mut(&mut changes.open.as_mut().expect("an attempt begins").attempt)
}

/// Changes in which the instance opens `attempt` with this payload.
pub(super) fn opening(instance: Instance, attempt: Attempt, payload: Payload) -> Changes {
    let newest = Some((attempt.call, attempt.number));
    let mut changes = Changes::of(Instance { newest, is_open: true, ..instance });
    changes.open = Some(Open { attempt: attempt.into(), payload: Some(payload) });
    changes
}

/// Changes that create an instance whose first call is scheduled, or executes in a session.
pub(super) fn beginning(key: &str, worker: Option<SessionId>) -> Changes {
    let instance = instance(key);
    let attempt = attempt(&instance, call(), worker);
    let mut changes = opening(instance, attempt, Payload::Bytes(key.as_bytes().to_vec()));
    changes.is_new = true;
    changes
}

/// Changes that complete the opened attempt at 200 and make its transition.
pub(super) fn success(begun: &Changes) -> Changes {
    let attempt = &begun.open.as_ref().unwrap().attempt;
    let instance = begun.instance.clone();
    let mut changes = Changes::of(Instance {
        state: Some(attempt.to.clone()),
        version: instance.version + 1,
        record: Some(b"{}".to_vec()),
        is_open: false,
        updated_at: at(200),
        ..instance
    });
    changes.close = Some(close(attempt, AttemptState::Success));
    changes
}

pub(super) fn close(attempt: &Attempt, becomes: AttemptState) -> Close {
    Close {
        call: attempt.call,
        number: attempt.number,
        expected: attempt.state,
        held_by: attempt.worker,
        frees: None,
        becomes,
        finished_at: at(200),
        error: (becomes == AttemptState::Error).then(|| "it broke".into()),
    }
}

/// Writes the changes and commits.
pub(super) async fn written(store: &Store, changes: &[&Changes]) -> Vec<Written> {
    let mut tx = store.begin().await.unwrap();
    let written = write(&mut tx.conn(), changes).await.unwrap();
    tx.commit().await.unwrap();
    written
}

pub(super) fn done(payload: Option<&str>) -> Written {
    Written::Done { payload: payload.map(|text| text.as_bytes().to_vec()) }
}

/// A timer of the instance.
pub(super) fn timer(instance: &Instance, state: Option<&str>) -> Timer {
    let event = Event { name: "Timeout".into(), payload: b"7".to_vec() };
    Timer {
        id: TimerId(Uuid::now_v7()),
        instance: instance.id,
        state: state.map(Into::into),
        event,
        due_at: at(300),
        priority: Priority::Normal,
    }
}

fn note(instance: &Instance) -> Note {
    let (id, detail, actor) = (instance.id, Some("it \"was\" 'late'".into()), None);
    Note { instance: id, at: at(1), kind: NoteKind::Late, call: Some(call()), detail, actor }
}

/// The end of a first attempt whose transition begins another call, with everything that one statement can write.
pub(super) fn going_on(begun: &Changes) -> Changes {
    let mut changes = success(begun);
    let next = attempt(&changes.instance, call(), begun.open.as_ref().unwrap().attempt.worker);
    changes.instance = Instance { newest: Some((next.call, 1)), is_open: true, inbox_tail: 1, ..changes.instance };
    changes.open = Some(Open { attempt: next.into(), payload: Some(Payload::Bytes(vec![0, 255])) });
    changes.timers = vec![TimerChange::Clear, TimerChange::Set(timer(&changes.instance, Some("created")))];
    changes.notes = vec![note(&changes.instance)];
    changes.request = Some(Request { dedup: "d".into(), event: Some("Paid".into()), digest: vec![1], call: call(), at: at(1) });
    let event = Event { name: "Paid".into(), payload: b"8".to_vec() };
    changes.waits = Some(Waits { position: 0, call: call(), event, priority: Priority::Normal, forecast: None });
    changes
}

//! Reads return what `write` wrote, and a change whose guard fails writes nothing.

use fsm_core::call::AttemptState;
use fsm_core::changes::{Changes, Forecast, Note, NoteKind, Open, Payload, Request, Timer, TimerChange, Waits};
use fsm_core::commit::rows::{Locked, Place, Target};
use fsm_core::commit::written::Written;
use fsm_core::ids::{InstanceId, TimerId};
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::Event;
use fsm_core::priority::Priority;
use uuid::Uuid;

use super::samples::{at, attempt, beginning, call, close, done, instance, opened, opening, session, success, written};
use crate::claim::{Except, Served, next_due};
use crate::conn::Conn;
use crate::lock;
use crate::open::Store;
use crate::pages::{self, PageFilter};
use crate::testing::on_each;
use crate::timers;
use crate::view;

fn event(payload: &str) -> Event {
    Event { name: "Paid".into(), payload: payload.as_bytes().to_vec() }
}

fn timer(instance: &Instance, state: Option<&str>, due_at: i64) -> Timer {
    let name = if state.is_some() { "Timeout" } else { "Paid" };
    let event = Event { name: name.into(), ..event("7") };
    Timer {
        id: TimerId(Uuid::now_v7()),
        instance: instance.id,
        state: state.map(Into::into),
        event,
        due_at: at(due_at),
        priority: Priority::Normal,
    }
}

fn served() -> Served {
    let [verbs, states, events] = [["created"], ["created"], ["Paid"]].map(|names| names.map(str::to_owned).to_vec());
    Served { machine: "payment".into(), verbs, timed: states.clone(), states, events }
}

async fn found(store: &Store, key: &str) -> Option<Instance> {
    view::find(&mut store.reader().await.unwrap().conn(), "payment", key).await.unwrap().map(|found| found.instance)
}

/// The number of inbox rows of an instance, independent of the counters in its row.
async fn how_many_wait(conn: &mut Conn<'_>, id: InstanceId) -> usize {
    let all = Instance { id, inbox_tail: i64::MAX, ..instance("any") };
    lock::inbox(conn, &[&all], i64::MAX).await.unwrap().len()
}

async fn due_keys(store: &Store, now: i64) -> Vec<Timer> {
    let due = timers::due(&mut store.reader().await.unwrap().conn(), &served(), at(now), 10, &Except::default()).await.unwrap();
    due.timers.into_iter().map(|due| due.timer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_an_instance_and_its_call_comes_back() {
    on_each(async |store| {
        let me = session();
        let mut begun = beginning("full", Some(me));
        begun.instance = Instance {
            status: Status::Error,
            state: Some("created".into()),
            paused: true,
            version: i64::MAX,
            record: Some(vec![0, 255]),
            error: Some("why".into()),
            inbox_head: 3,
            inbox_tail: 9,
            ..begun.instance
        };
        let begun_attempt = opened(&mut begun);
        begun_attempt.from = Some("before".into());
        begun_attempt.held = true;
        begun_attempt.previous = Some(call());
        let bare = {
            let mut bare = beginning("bare", None);
            opened(&mut bare).retry_state.policy = None;
            bare
        };
        assert_eq!(written(&store, &[&begun, &bare]).await, [done(Some("full")), done(Some("bare"))]);

        let mut tx = store.begin().await.unwrap();
        let mut conn = tx.conn();
        let targets = ["bare", "gone", "full"].map(|key| Target { machine: "payment", key });
        let instances = lock::instances(&mut conn, &targets).await.unwrap();
        let newest = |changes: &Changes| changes.open.as_ref().map(|open| open.attempt.clone());
        let locked = |changes: &Changes| Some(Locked { instance: changes.instance.clone(), newest: newest(changes), has_timer: false });
        assert_eq!(instances, [locked(&bare), None, locked(&begun)]);
        let ids = lock::instances_by_id(&mut conn, &[begun.instance.id, instance("x").id, bare.instance.id]).await.unwrap();
        let with_newest = |changes: &Changes| Some((changes.instance.clone(), newest(changes).as_deref().cloned()));
        assert_eq!(ids, [with_newest(&begun), None, with_newest(&bare)]);
        let begun_attempt = newest(&begun).unwrap();
        assert_eq!(lock::attempts(&mut conn, &[(begun_attempt.call, 1)]).await.unwrap(), [], "it has not ended");
        assert_eq!(view::payload(&mut conn, begun.instance.id, begun_attempt.call).await.unwrap(), Some(b"full".to_vec()));
        assert_eq!(view::payload(&mut conn, begun.instance.id, call()).await.unwrap(), None);
        tx.rollback().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_member_writes_nothing_and_the_others_go_on() {
    on_each(async |store| {
        let me = session();
        let (first, second) = (beginning("one", Some(me)), beginning("two", Some(me)));
        written(&store, &[&first, &second]).await;
        let before = found(&store, "one").await.unwrap();

        let mut outdated = success(&first);
        outdated.close.as_mut().unwrap().held_by = Some(session());
        let set = timer(&outdated.instance, Some("created"), 300);
        outdated.timers.push(TimerChange::Set(set.clone()));
        outdated.waits = Some(Waits { position: 0, call: call(), event: event("1"), priority: Priority::Normal, forecast: None });
        outdated.notes.push(Note {
            instance: outdated.instance.id,
            at: at(1),
            kind: NoteKind::Late,
            call: None,
            detail: None,
            actor: None,
        });
        outdated.request = Some(Request { dedup: "d".into(), event: None, digest: vec![1], call: call(), at: at(1) });
        outdated.open = Some(Open { attempt: attempt(&outdated.instance, call(), None).into(), payload: Some(Payload::Bytes(vec![1])) });
        assert_eq!(written(&store, &[&outdated, &success(&second)]).await, [Written::Outdated, done(None)]);

        assert_eq!(found(&store, "one").await.unwrap(), before);
        assert_eq!(found(&store, "two").await.unwrap(), Instance { row_version: 1, ..success(&second).instance });
        let mut reader = store.reader().await.unwrap();
        let mut conn = reader.conn();
        assert_eq!(view::notes(&mut conn, before.id).await.unwrap(), []);
        assert_eq!(how_many_wait(&mut conn, before.id).await, 0);
        assert_eq!(lock::requests(&mut conn, &[(before.id, "d")]).await.unwrap(), []);
        assert_eq!(view::calls(&mut conn, &first.open.as_ref().unwrap().attempt).await.unwrap().len(), 1);
        drop(reader);
        assert_eq!(due_keys(&store, 1000).await, []);

        for (expected, number) in [(AttemptState::Scheduled, 1), (AttemptState::Executing, 2)] {
            let mut wrong = success(&first);
            let close = wrong.close.as_mut().unwrap();
            (close.expected, close.number) = (expected, number);
            assert_eq!(written(&store, &[&wrong]).await, [Written::Outdated]);
        }
        assert_eq!(written(&store, &[&success(&first)]).await, [done(None)]);
        assert_eq!(written(&store, &[&success(&first)]).await, [Written::Outdated]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_create_one_key_one_wins() {
    on_each(async |store| {
        let racers = (0..16).map(|racer| {
            let store = store.clone();
            tokio::spawn(async move {
                let (same, own) = (beginning("same", None), beginning(&format!("own-{racer}"), None));
                let written = written(&store, &[&same, &own]).await;
                assert!(matches!(written[1], Written::Done { .. }));
                (written[0] != Written::Outdated).then_some(same)
            })
        });
        let mut winners = Vec::new();
        for racer in racers.collect::<Vec<_>>() {
            winners.extend(racer.await.unwrap());
        }
        assert_eq!(winners.len(), 1);
        assert_eq!(found(&store, "same").await.unwrap(), winners[0].instance);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires_once() {
    on_each(async |store| {
        let begun = beginning("t", Some(session()));
        let mut rested = success(&begun);
        let (own, delayed) = (timer(&rested.instance, Some("created"), 300), timer(&rested.instance, None, 310));
        rested.timers = vec![TimerChange::Set(own.clone()), TimerChange::Set(delayed.clone())];
        written(&store, &[&begun]).await;
        written(&store, &[&rested]).await;
        assert_eq!(due_keys(&store, 299).await, []);
        assert_eq!(due_keys(&store, 310).await, [own.clone(), delayed.clone()]);

        let held = Changes { timers: vec![TimerChange::Hold(own.id)], ..Changes::of(rested.instance.clone()) };
        written(&store, &[&held]).await;
        assert_eq!(due_keys(&store, 310).await, std::slice::from_ref(&delayed));
        let released = Changes { timers: vec![TimerChange::Release], ..held.clone() };
        written(&store, &[&released]).await;
        assert_eq!(due_keys(&store, 310).await.len(), 2);

        let attempt = attempt(&rested.instance, call(), None);
        let mut fired = opening(rested.instance.clone(), attempt, Payload::Bytes(b"now".to_vec()));
        fired.timers = vec![TimerChange::Fired(own.id)];
        assert_eq!(written(&store, &[&fired]).await, [done(Some("now"))]);
        assert_eq!(written(&store, &[&fired]).await, [Written::Outdated]);

        let mut left = success(&fired);
        let next = timer(&left.instance, Some("created"), 400);
        left.timers = vec![TimerChange::Clear, TimerChange::Set(next.clone())];
        left.close.as_mut().unwrap().held_by = None;
        assert_eq!(written(&store, &[&left]).await, [done(None)]);
        assert_eq!(due_keys(&store, 400).await, [delayed, next]);

        // A change with two guards: its timer is gone, so its attempt stays open.
        let mut both = beginning("both", None);
        written(&store, &[&both]).await;
        both.is_new = false;
        let mut ended = success(&both);
        ended.timers = vec![TimerChange::Fired(own.id)];
        assert_eq!(written(&store, &[&ended]).await, [Written::Outdated]);
        assert!(found(&store, "both").await.unwrap().is_open);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_from_the_request_the_inbox_or_an_exhausted_call() {
    on_each(async |store| {
        let me = session();
        let begun = beginning("in", Some(me));
        written(&store, &[&begun]).await;
        let waiting: Vec<_> = (0..3)
            .map(|position| Waits {
                position,
                call: call(),
                event: event(&format!("{position}")),
                priority: Priority::Normal,
                forecast: Some(Forecast { graph: u64::MAX, states: vec![None, Some(format!("after {position}"))] }),
            })
            .collect();
        let mut row = begun.instance.clone();
        for waits in &waiting {
            row.inbox_tail = waits.position + 1;
            written(&store, &[&Changes { waits: Some(waits.clone()), ..Changes::of(row.clone()) }]).await;
        }
        let mut reader = store.reader().await.unwrap();
        let inbox = lock::inbox(&mut reader.conn(), &[&row], 99).await.unwrap();
        let as_read: Vec<_> = inbox.iter().map(|(_, waiting)| (waiting.position, waiting.call, waiting.event.as_str())).collect();
        assert_eq!(as_read, waiting.iter().map(|waits| (waits.position, waits.call, "Paid")).collect::<Vec<_>>());
        for (most, known) in [(1, 1), (2, 3), (3, 3), (99, 3)] {
            let ends = lock::inbox_ends(&mut reader.conn(), &[&row], most).await.unwrap().remove(&row.id).unwrap();
            assert_eq!((ends.first.len(), &ends.forecast), (known, &waiting[2].forecast), "of at most {most}");
        }
        drop(reader);
        written(&store, &[&Changes { is_forecast_stale: true, ..Changes::of(row.clone()) }]).await;
        let ends = lock::inbox_ends(&mut store.reader().await.unwrap().conn(), &[&row], 1).await.unwrap().remove(&row.id).unwrap();
        assert_eq!((ends.first.len(), ends.forecast), (1, None));

        // The first waiting event is rejected, the second is taken.
        let mut taken = success(&begun);
        taken.instance.inbox_tail = 3;
        taken.instance.inbox_head = 2;
        taken.inbox_taken = Some(0..2);
        let next = attempt(&taken.instance, waiting[1].call, Some(me));
        taken.instance.newest = Some((next.call, 1));
        taken.instance.is_open = true;
        taken.open = Some(Open { attempt: next.clone().into(), payload: Some(Payload::Inbox(1)) });
        assert_eq!(written(&store, &[&taken]).await, [done(Some("1"))]);

        // The second call fails, and its catch verb gets the payload that it had.
        let mut caught = Changes::of(taken.instance.clone());
        caught.close = Some(close(&next, AttemptState::Error));
        let catching = attempt(&caught.instance, call(), None);
        let payload = Payload::Caught { call: next.call, error: "no".into(), attempts: 1 };
        caught = Changes { close: caught.close, ..opening(caught.instance, catching, payload) };
        assert_eq!(written(&store, &[&caught]).await, [done(Some(r#"{"event":1,"error":"no","attempts":1}"#))]);

        let mut reader = store.reader().await.unwrap();
        let mut conn = reader.conn();
        assert_eq!(how_many_wait(&mut conn, row.id).await, 1);
        let newest = view::find(&mut conn, "payment", &row.key).await.unwrap().unwrap().newest.unwrap();
        let history = view::calls(&mut conn, &newest).await.unwrap();
        let states: Vec<_> = history.iter().map(|attempt| attempt.state).collect();
        assert_eq!(states, [AttemptState::Success, AttemptState::Error, AttemptState::Scheduled]);
        assert_eq!(history[1].error.as_deref(), Some("it broke"));
        let delayed = timer(&row, None, 5);
        let stated = timer(&row, Some("created"), 5);
        drop(reader);
        let set = [delayed.clone(), stated.clone()].map(TimerChange::Set).to_vec();
        let rejected = call();
        let note = |kind, call| Note { instance: row.id, at: at(6), kind, call: Some(call), detail: None, actor: None };
        let stranger = call();
        let notes = vec![note(NoteKind::Rejected, rejected), note(NoteKind::Late, stranger)];
        written(&store, &[&Changes { timers: set, notes, ..Changes::of(caught.instance.clone()) }]).await;
        let ids = [delayed.id.0, stated.id.0].map(fsm_core::ids::CallId);
        let asked = [next.call, waiting[2].call, ids[0], rejected, ids[1], stranger, call()];
        let mut reader = store.reader().await.unwrap();
        let mut known = lock::known(&mut reader.conn(), &asked).await.unwrap();
        known.sort_by_key(|known| asked.iter().position(|asked| *asked == known.call));
        assert_eq!(known.iter().map(|known| known.place).collect::<Vec<_>>(), [Place::Call, Place::Inbox, Place::Timer, Place::Rejected]);
        assert!(known.iter().all(|known| known.instance == row.id));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_requests_and_holds_are_kept() {
    on_each(async |store| {
        let begun = beginning("n", None);
        written(&store, &[&begun]).await;
        let mut changes = Changes::of(begun.instance.clone());
        changes.instance.paused = true;
        changes.hold = begun.instance.newest;
        let notes = [NoteKind::Paused, NoteKind::Rejected].map(|kind| Note {
            instance: begun.instance.id,
            at: at(7),
            kind,
            call: Some(call()),
            detail: Some("so it is".into()),
            actor: Some("me".into()),
        });
        changes.notes = notes.to_vec();
        let request = Request { dedup: "evt-77".into(), event: Some("Paid".into()), digest: vec![9; 32], call: call(), at: at(7) };
        changes.request = Some(request.clone());
        written(&store, &[&changes]).await;

        let mut reader = store.reader().await.unwrap();
        let mut conn = reader.conn();
        assert_eq!(view::notes(&mut conn, begun.instance.id).await.unwrap(), notes);
        let asked = [(begun.instance.id, "evt-77"), (begun.instance.id, "evt-78")];
        assert_eq!(lock::requests(&mut conn, &asked).await.unwrap(), [(begun.instance.id, request)]);
        let newest = view::find(&mut conn, "payment", "n").await.unwrap().unwrap().newest.unwrap();
        assert!(newest.held);
        assert_eq!(next_due(&mut conn, &served(), &Except::default()).await.unwrap(), None, "a paused instance has nothing that is due");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_text_that_no_database_takes_is_made_fit() {
    on_each(async |store| {
        let begun = beginning("e", Some(session()));
        written(&store, &[&begun]).await;
        let mut failed = success(&begun);
        failed.instance.status = Status::Error;
        failed.instance.error = Some(format!("\0{}", "ä".repeat(9000)));
        failed.close.as_mut().unwrap().becomes = AttemptState::Error;
        failed.close.as_mut().unwrap().error = failed.instance.error.clone();
        assert_eq!(written(&store, &[&failed]).await, [done(None)]);
        let error = found(&store, "e").await.unwrap().error.unwrap();
        assert!(error.starts_with('\u{fffd}') && error.len() <= 8192);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_batch_is_written_whole() {
    on_each(async |store| {
        let me = session();
        let begun: Vec<_> = (0..250).map(|n| beginning(&format!("k{n:03}"), Some(me))).collect();
        let all = written(&store, &begun.iter().collect::<Vec<_>>()).await;
        assert!(all.iter().zip(&begun).all(|(written, begun)| *written == done(Some(&begun.instance.key))));
        let ended: Vec<_> = begun.iter().map(success).collect();
        let all = written(&store, &ended.iter().collect::<Vec<_>>()).await;
        assert!(all.iter().all(|written| *written == done(None)));

        let mut reader = store.reader().await.unwrap();
        let mut conn = reader.conn();
        let counts = view::counts(&mut conn, "payment").await.unwrap();
        assert_eq!(counts, [(Status::Running, Some("created".into()), 250)]);
        let mut filter = PageFilter { state: Some("created".into()), paused: Some(false), limit: 100, ..PageFilter::default() };
        let mut seen = Vec::new();
        loop {
            let page = pages::page(&mut conn, "payment", &filter).await.unwrap();
            assert!(!page.was_cut);
            seen.extend(page.rows.into_iter().map(|found| found.instance.id));
            filter.after = page.next;
            if filter.after.is_none() {
                break;
            }
        }
        let mut ids: Vec<_> = begun.iter().map(|begun| begun.instance.id).collect();
        ids.sort();
        assert_eq!(seen, ids);
        // The limit of instances to read ends the page, and the next page continues after it.
        let rare =
            PageFilter { error: Some("none".into()), limit: 9, newest_first: true, look_at_most: Some(100), ..PageFilter::default() };
        let (first, second) = (pages::page(&mut conn, "payment", &rare).await.unwrap(), ids[150]);
        assert_eq!((first.rows, first.next, first.was_cut), (Vec::new(), Some(pages::After::Instance(second)), true));
        let last = pages::page(&mut conn, "payment", &PageFilter { after: Some(pages::After::Instance(ids[100])), ..rare }).await.unwrap();
        assert_eq!((last.rows, last.next, last.was_cut), (Vec::new(), None, false));
        let none = PageFilter { status: Some(Status::Error), limit: 9, ..PageFilter::default() };
        assert_eq!(pages::page(&mut conn, "payment", &none).await.unwrap().rows, []);
        let none = PageFilter { paused: Some(true), limit: 9, ..PageFilter::default() };
        assert_eq!(pages::page(&mut conn, "payment", &none).await.unwrap().rows, []);
    })
    .await;
}

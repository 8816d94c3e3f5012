//! An event that a verb sends is never lost for lack of room: it waits in the outbox, and is delivered once and in order when there is
//! room.

use std::fmt::Display;
use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{HistoryEntry, HistoryEvent};
use serde::{Deserialize, Serialize};

use crate::sql_runner::{SqlRunner, is_postgres, run};
use crate::support::{in_own_transaction, promise, stride};

const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// The parcels that have reported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Arrivals {
    parcels: Vec<String>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Place;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arrived {
    parcel: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Close;
/// A parcel sends this number of reports to its order. With `own_sql` it first runs SQL of its own; the value tells if the database is
/// PostgreSQL.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Deliver {
    reports: u32,
    own_sql: Option<bool>,
    is_required: bool,
}

#[verb]
async fn placed(_event: Place) -> Result {
    Ok(())
}
#[verb]
#[retry("1s")]
async fn arriving(record: &mut Arrivals, event: Arrived) -> Result {
    record.parcels.push(event.parcel);
    Ok(())
}
#[verb]
async fn closed(_event: Close) -> Result {
    Ok(())
}

#[verb]
#[retry(1, "5s")]
async fn delivered(ctx: &mut Ctx<'_>, event: Deliver) -> Result {
    let text = "insert into ledger values (1)";
    if let Some(is_postgres) = event.own_sql {
        in_own_transaction!(ctx, is_postgres, conn => sqlx::query(text).execute(conn).await.map(drop)?);
    }
    let (order, name) =
        ctx.key().trim_start_matches('{').split_once("}/").map(|(order, name)| (order.to_owned(), name.to_owned())).unwrap();
    for n in 0..event.reports {
        let parcel = format!("{name}.{n}");
        let report = ctx.send::<Order>(&order, Arrived { parcel })?;
        if event.is_required {
            report.required();
        }
    }
    Ok(())
}

fsm! {
    machine Order = "outbox-order" {
        keeps Arrivals;
        start placed;
        any(placed, arriving) -> arriving | closed;
        end closed;
    }
}
fsm! {
    machine Parcel = "outbox-parcel" {
        start delivered;
        end delivered;
    }
}

fn orders() -> TestBedBuilder {
    TestBed::builder().only::<Order>().only::<Parcel>().only::<SqlRunner>().with(|builder| builder.inbox_limit(2))
}

/// Creates a paused order with room for `room` more events.
async fn held_order(bed: &TestBed, room: u32) -> fsm::Handle<Order> {
    hold(bed, "o-1", room).await
}

async fn hold(bed: &TestBed, key: &str, room: u32) -> fsm::Handle<Order> {
    let orders = bed.machine::<Order>();
    orders.send(key, Place).await.unwrap();
    bed.run_until_idle().await;
    orders.pause(key).await.unwrap();
    // The first event is the held call, and two more may wait.
    for n in 0..3 - room {
        orders.send(key, Arrived { parcel: format!("early.{n}") }).await.unwrap();
    }
    orders
}

/// The key of a parcel of the order `o-1`. The tag puts both into one partition, so that an event without room waits in the outbox.
fn of_o_1(name: impl Display) -> String {
    format!("{{o-1}}/{name}")
}

async fn deliver(bed: &TestBed, key: String, reports: u32) {
    bed.machine::<Parcel>().send(key, Deliver { reports, own_sql: None, is_required: false }).await.unwrap();
    bed.run_until_idle().await;
}

async fn arrived(orders: &fsm::Handle<Order>) -> Vec<String> {
    orders.get("o-1").await.unwrap().unwrap().record.parcels
}

async fn in_outbox(bed: &TestBed) -> i64 {
    run(bed, "select count(*) from fsm_outbox").await.unwrap()
}

fn notes(history: &[HistoryEntry]) -> Vec<String> {
    let note = |entry: &HistoryEntry| match &entry.event {
        HistoryEvent::Note { kind, detail, .. } => Some(format!("{kind}: {}", detail.as_deref().unwrap_or_default())),
        _ => None,
    };
    history.iter().filter_map(note).filter(|note| !note.starts_with("paused") && !note.starts_with("resumed")).collect()
}

promise! {
    async fn an_event_to_a_full_inbox_waits_and_is_delivered_when_there_is_room(bed in orders()) {
        let orders = held_order(bed, 0).await;
        for n in 0..5 {
            deliver(bed, of_o_1(format!("p-{n}")), 1).await;
            let parcel = bed.machine::<Parcel>().get(of_o_1(format!("p-{n}"))).await.unwrap().unwrap();
            assert_eq!((parcel.status, parcel.version), (Status::Completed, 1), "the sender goes on");
        }
        bed.advance(20 * FIVE_SECONDS).await;
        assert_eq!((orders.get("o-1").await.unwrap().unwrap().inbox_len, in_outbox(bed).await), (2, 5));
        assert!(orders.send("o-1", Arrived { parcel: "late".into() }).await.unwrap_err().is_busy(), "a caller is told at once");
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(arrived(&orders).await, ["early.0", "early.1", "early.2", "p-0.0", "p-1.0", "p-2.0", "p-3.0", "p-4.0"]);
        assert_eq!(in_outbox(bed).await, 0);
    }
}

promise! {
    async fn the_events_of_one_sender_to_one_receiver_keep_their_order(bed in orders()) {
        let orders = held_order(bed, 1).await;
        deliver(bed, of_o_1("p"), 4).await;
        assert_eq!(in_outbox(bed).await, 3, "the first one found room");
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(arrived(&orders).await, ["early.0", "early.1", "p.0", "p.1", "p.2", "p.3"]);
    }
}

/// Regression: 999 of these events were lost.
mod two_thousand_events_to_an_instance_with_an_inbox_of_a_thousand_lose_nothing {
    use super::*;

    fn builder() -> TestBedBuilder {
        orders().with(|builder| builder.inbox_limit(1000))
    }

    async fn check(bed: &TestBed) {
        let orders = held_order(bed, 3).await;
        for n in 0..20 {
            bed.machine::<Parcel>()
                .send(of_o_1(format!("p-{n}")), Deliver { reports: 100, own_sql: None, is_required: false })
                .await
                .unwrap();
        }
        bed.run_until_idle().await;
        // One event is the held call.
        assert_eq!((orders.get("o-1").await.unwrap().unwrap().inbox_len, in_outbox(bed).await), (1000, 999));
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        let mut arrived = arrived(&orders).await;
        assert_eq!(arrived.len(), 2000);
        for n in 0..20 {
            let prefix = format!("p-{n}.");
            let numbers: Vec<u32> = arrived.iter().filter_map(|parcel| parcel.strip_prefix(&prefix)?.parse().ok()).collect();
            assert!(numbers.is_sorted(), "{numbers:?}");
        }
        arrived.sort();
        arrived.dedup();
        assert_eq!(arrived.len(), 2000, "none came twice");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite() {
        check(&builder().sqlite().await).await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres() {
        check(&builder().postgres().await).await;
    }
}

promise! {
    async fn a_process_that_dies_anywhere_delivers_what_waits_once(bed in orders()) {
        let orders = held_order(bed, 0).await;
        let mut expected: Vec<String> = (0..3).map(|n| format!("early.{n}")).collect();
        // A PostgreSQL session has three times as many statements, so a fifth of them are tried there.
        for crash in (0..).step_by(if is_postgres(bed) { 5 * stride(bed) } else { 1 }) {
            let key = format!("p-{crash}");
            let lives = !bed.crash_after_statements(crash, async {
                deliver(bed, of_o_1(&key), 2).await;
                orders.resume("o-1").await.unwrap();
                bed.run_until_idle().await;
            }).await;
            // The attempts of the dead process are lost when its lease ends, and their calls are retried.
            bed.advance(8 * FIVE_SECONDS).await;
            if bed.machine::<Parcel>().get(of_o_1(&key)).await.unwrap().is_some() {
                expected.extend([format!("{key}.0"), format!("{key}.1")]);
            }
            let order = orders.get("o-1").await.unwrap().unwrap();
            if order.paused {
                orders.resume("o-1").await.unwrap();
                bed.advance(8 * FIVE_SECONDS).await;
            }
            assert_eq!(arrived(&orders).await, expected, "death after {crash} statements");
            if lives {
                return;
            }
            orders.pause("o-1").await.unwrap();
            for n in 0..3 {
                let parcel = format!("{crash}-early.{n}");
                orders.send("o-1", Arrived { parcel: parcel.clone() }).await.unwrap();
                expected.push(parcel);
            }
        }
    }
}

promise! {
    async fn what_a_verb_wrote_is_committed_with_the_events_that_wait(bed in orders()) {
        run(bed, "create table ledger (entry bigint)").await;
        let orders = held_order(bed, 0).await;
        bed.machine::<Parcel>().send(of_o_1("p"), Deliver { reports: 1, own_sql: Some(is_postgres(bed)), is_required: false }).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((in_outbox(bed).await, run(bed, "select count(*) from ledger").await), (1, Some(1)));
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(arrived(&orders).await.last().map(String::as_str), Some("p.0"));
    }
}

promise! {
    async fn a_send_that_is_refused_is_recorded_for_sender_and_receiver(bed in orders()) {
        let orders = held_order(bed, 3).await;
        orders.resume("o-1").await.unwrap();
        orders.send("o-1", Close).await.unwrap();
        bed.run_until_idle().await;
        deliver(bed, of_o_1("p"), 1).await;
        let why = "`outbox-order` `o-1` is completed in `closed` and takes no events, not `Arrived`";
        assert_eq!(notes(&orders.history("o-1").await.unwrap()), [format!("rejected: {why}")]);
        assert_eq!(notes(&bed.machine::<Parcel>().history(of_o_1("p")).await.unwrap()), [format!("refused: {why}")]);
    }
}

promise! {
    async fn an_event_that_waits_for_an_instance_that_ends_is_recorded_for_both(bed in orders()) {
        let orders = held_order(bed, 0).await;
        deliver(bed, of_o_1("p"), 1).await;
        orders.cancel("o-1", "nobody wants it").await.unwrap();
        bed.run_until_idle().await;
        let why = "`outbox-order` `o-1` is cancelled in `placed` and takes no events, not `Arrived`";
        let history = notes(&orders.history("o-1").await.unwrap());
        assert_eq!(history.last(), Some(&format!("rejected: {why}")));
        assert_eq!(notes(&bed.machine::<Parcel>().history(of_o_1("p")).await.unwrap()), [format!("refused: {why}")]);
        assert_eq!(in_outbox(bed).await, 0);
    }
}

promise! {
    async fn a_required_send_that_is_refused_fails_the_attempt_and_one_without_room_does_not(bed in orders()) {
        let orders = held_order(bed, 0).await;
        let parcels = bed.machine::<Parcel>();
        let required = Deliver { reports: 2, own_sql: None, is_required: true };
        parcels.send(of_o_1("waits"), required.clone()).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!((parcels.get(of_o_1("waits")).await.unwrap().unwrap().status, in_outbox(bed).await), (Status::Completed, 2));

        orders.cancel("o-1", "nobody wants it").await.unwrap();
        parcels.send(of_o_1("refused"), required).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        let refused = parcels.get(of_o_1("refused")).await.unwrap().unwrap();
        let why = "a required event that the verb sent was refused: `outbox-order` `o-1` is cancelled in `placed` and takes no events, not `Arrived`";
        assert_eq!((refused.status, refused.version, refused.error.as_deref()), (Status::Error, 0, Some(why)));
        assert_eq!(parcels.attempts(of_o_1("refused")).await.unwrap().len(), 2, "it was retried by its policy");
    }
}

promise! {
    async fn a_delayed_event_that_was_accepted_is_delivered_to_a_full_inbox(bed in orders()) {
        let orders = held_order(bed, 0).await;
        orders.send("o-1", Arrived { parcel: "delayed".into() }).after(FIVE_SECONDS).await.unwrap();
        bed.advance(FIVE_SECONDS).await;
        assert_eq!(orders.get("o-1").await.unwrap().unwrap().inbox_len, 3);
        assert!(orders.send("o-1", Arrived { parcel: "late".into() }).await.unwrap_err().is_busy());
        orders.resume("o-1").await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(arrived(&orders).await.last().map(String::as_str), Some("delayed"));
    }
}

promise! {
    /// Each row of the broken line raises an error when it is taken from the outbox.
    async fn a_line_that_cannot_be_delivered_keeps_no_other_from_it(bed in orders()) {
        let orders = held_order(bed, 0).await;
        hold(bed, "o-2", 0).await;
        deliver(bed, "{o-2}/other-1".into(), 1).await;
        deliver(bed, of_o_1("p-1"), 1).await;
        assert_eq!(in_outbox(bed).await, 2);
        if is_postgres(bed) {
            let raises = "if old.key = 'o-2' then raise 'this row is broken'; end if";
            run(bed, format!("create function broken() returns trigger language plpgsql as $$ begin {raises}; return old; end $$")).await;
            run(bed, "create trigger broken before delete on fsm_outbox for each row execute function broken()").await;
        } else {
            let raises = "select raise(abort, 'this row is broken')";
            run(bed, format!("create trigger broken before delete on fsm_outbox when old.key = 'o-2' begin {raises}; end")).await;
        }
        for key in ["o-1", "o-2"] {
            orders.resume(key).await.unwrap();
        }
        bed.run_until_idle().await;
        assert_eq!(arrived(&orders).await, ["early.0", "early.1", "early.2", "p-1.0"], "the other line is delivered");
        assert_eq!(in_outbox(bed).await, 1);
        run(bed, if is_postgres(bed) { "drop trigger broken on fsm_outbox" } else { "drop trigger broken" }).await;
        bed.advance(12 * FIVE_SECONDS).await;
        assert_eq!(in_outbox(bed).await, 0, "it is delivered once that is possible");
    }
}

//! A delayed send that a verb cancels is not delivered. One that was already delivered stays delivered.

use std::time::Duration;

use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{CallId, HistoryEvent};
use serde::{Deserialize, Serialize};

use crate::support::promise;

const AN_HOUR: Duration = Duration::from_secs(3600);

/// The reminder that is to come.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Invoice {
    reminder: Option<CallId>,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Issue;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pay;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PayTwice;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Remind;

#[verb]
async fn issued(ctx: &mut Ctx<'_>, record: &mut Invoice, _event: Issue) -> Result {
    let key = ctx.key().to_owned();
    record.reminder = Some(ctx.send::<Letter>(key, Remind)?.after(AN_HOUR));
    Ok(())
}
#[verb]
async fn paid(ctx: &mut Ctx<'_>, record: &mut Invoice, _event: Pay) -> Result {
    if let Some(reminder) = record.reminder.take() {
        ctx.unsend(reminder);
    }
    Ok(())
}
/// The first attempt fails after it cancelled the reminder.
#[verb]
#[retry(1, "1s")]
async fn paid_late(ctx: &mut Ctx<'_>, record: &mut Invoice, _event: PayTwice) -> Result {
    let of_this_attempt = ctx.send::<Letter>("never", Remind)?.after(AN_HOUR);
    ctx.unsend(of_this_attempt);
    if ctx.attempt() == 1 {
        record.reminder.into_iter().for_each(|reminder| ctx.unsend(reminder));
        return Err(Failure::new("the bank is closed"));
    }
    Ok(())
}
#[verb]
async fn reminded(_event: Remind) -> Result {
    Ok(())
}

fsm! {
    machine Bill = "unsend-bill" {
        keeps Invoice;
        start issued;
        issued -> paid | paid_late;
        end paid, paid_late;
    }
}
fsm! {
    machine Letter = "unsend-letter" {
        start reminded;
        reminded -> reminded;
    }
}

fn bills() -> TestBedBuilder {
    TestBed::builder().only::<Bill>().only::<Letter>()
}

async fn unsent(bed: &TestBed) -> Vec<String> {
    let history = bed.machine::<Bill>().history("b").await.unwrap();
    let note = |event: HistoryEvent| match event {
        HistoryEvent::Note { kind, detail, .. } => Some(format!("{kind}: {}", detail.unwrap_or_default())),
        _ => None,
    };
    history.into_iter().filter_map(|entry| note(entry.event)).collect()
}

promise! {
    async fn a_cancelled_delayed_send_is_not_delivered(bed in bills()) {
        let bills = bed.machine::<Bill>();
        bills.send("b", Issue).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(bed.machine::<Letter>().get("b").await.unwrap().unwrap().status, Status::Running);
        bills.send("b", Pay).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(unsent(bed).await, ["unsent: `Remind` to `unsend-letter` `b` is not delivered"]);
        // No further event is to come for the letter, which has not begun.
        assert_eq!(bed.machine::<Letter>().get("b").await.unwrap().unwrap().status, Status::Cancelled);
        bed.advance(2 * AN_HOUR).await;
        assert_eq!(bed.machine::<Letter>().get("b").await.unwrap().unwrap().version, 0);
    }
}

promise! {
    async fn a_receiver_that_has_begun_continues_without_a_cancelled_delayed_event(bed in bills()) {
        let letters = bed.machine::<Letter>();
        letters.send("b", Remind).await.unwrap();
        bed.machine::<Bill>().send("b", Issue).await.unwrap();
        bed.run_until_idle().await;
        bed.machine::<Bill>().send("b", Pay).await.unwrap();
        bed.advance(2 * AN_HOUR).await;
        let letter = letters.get("b").await.unwrap().unwrap();
        assert_eq!((letter.status, letter.version), (Status::Running, 1));
    }
}

promise! {
    async fn cancelling_a_delayed_send_after_its_delivery_changes_nothing(bed in bills()) {
        let bills = bed.machine::<Bill>();
        bills.send("b", Issue).await.unwrap();
        bed.advance(2 * AN_HOUR).await;
        bills.send("b", Pay).await.unwrap();
        bed.run_until_idle().await;
        assert_eq!(bills.get("b").await.unwrap().unwrap().status, Status::Completed);
        assert_eq!(bed.machine::<Letter>().get("b").await.unwrap().unwrap().version, 1);
        assert_eq!(unsent(bed).await, ["unsent: the event was delivered already, and stays delivered"]);
    }
}

promise! {
    async fn a_failed_attempt_cancels_no_delayed_send(bed in bills()) {
        let bills = bed.machine::<Bill>();
        bills.send("b", Issue).await.unwrap();
        bed.run_until_idle().await;
        bills.send("b", PayTwice).await.unwrap();
        bed.advance(2 * AN_HOUR).await;
        assert_eq!(bills.get("b").await.unwrap().unwrap().status, Status::Completed);
        let letters = bed.machine::<Letter>();
        assert_eq!(letters.get("b").await.unwrap().unwrap().version, 1);
        assert!(letters.get("never").await.unwrap().is_none(), "a send that its own attempt takes back is none");
        assert!(unsent(bed).await.is_empty());
    }
}

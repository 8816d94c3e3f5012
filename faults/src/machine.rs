//! The machines of the fault tests: accounts, their receipts, and tills. Every verb first writes to the ledger.

use std::io;

use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Line};
use crate::sql;

/// The record of an instance: the sum of its transitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    pub cents: u64,
    pub taken: Vec<u32>,
    /// The accounts that sent to a till last, each with the number of its last event.
    #[serde(default)]
    pub heard: Vec<(String, u32)>,
}

/// The content of each event: its number, the amount, the duration of the verb, the number of attempts that fail, and the till that also
/// counts it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    pub n: u32,
    pub cents: u64,
    pub ms: u64,
    pub failures: u32,
    pub till: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wager(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Move(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Book(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stall(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Close(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issue(pub Work);
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Count {
    #[serde(flatten)]
    pub work: Work,
    /// The key of the account.
    pub from: String,
}

/// True if the machines run on PostgreSQL.
pub struct OnPostgres(pub bool);

/// Records that the verb runs, before it does anything.
pub async fn record_start(ctx: &Ctx<'_>, ledger: &Ledger, verb: &str) -> io::Result<()> {
    let (key, call) = (ctx.key().to_owned(), ctx.idempotency_key().to_owned());
    ledger.sure(&Line::AttemptStarted { key, call, attempt: ctx.attempt(), verb: verb.to_owned() }).await
}

/// Takes the given time, fails as often as the event says, and then records the money that it moved outside the database.
pub async fn do_work(ctx: &Ctx<'_>, ledger: &Ledger, work: &Work) -> io::Result<()> {
    if work.ms > 0 {
        tokio::time::sleep(Duration::from_millis(work.ms)).await;
    }
    if ctx.attempt() <= work.failures {
        return Err(io::Error::other("it fails as its event asks"));
    }
    ledger.note(&Line::MoneyMoved { call: ctx.idempotency_key().to_owned(), attempt: ctx.attempt(), cents: work.cents })
}

/// Records the success. Nothing after it can fail, so the attempt must never be recorded as a failure.
pub fn record_success(ctx: &Ctx<'_>, ledger: &Ledger) -> Result {
    Ok(ledger.note(&Line::Succeeded { call: ctx.idempotency_key().to_owned(), attempt: ctx.attempt() })?)
}

pub fn add_to_totals(record: &mut Totals, work: &Work) {
    record.cents += work.cents;
    record.taken.push(work.n);
}

#[verb]
#[retry("20ms")]
async fn opened(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Open) -> Result {
    record_start(ctx, &ledger, "opened").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

/// Has no retry policy, so it must not run twice.
#[verb]
async fn wagered(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Wager) -> Result {
    record_start(ctx, &ledger, "wagered").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

#[verb]
#[retry("20ms")]
async fn moved(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Move) -> Result {
    record_start(ctx, &ledger, "moved").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    if let Some(till) = event.0.till {
        let from = ctx.key().to_owned();
        ctx.send::<Till>(till_key(till), Count { work: Work { failures: 0, ms: 0, ..event.0 }, from })?;
    }
    record_success(ctx, &ledger)
}

/// Writes a row of its own in the transaction of its transition.
#[verb]
#[retry("20ms")]
async fn booked(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, database: Data<OnPostgres>, event: Book) -> Result {
    record_start(ctx, &ledger, "booked").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    let (call, cents) = (ctx.idempotency_key().to_owned(), i64::try_from(event.0.cents).unwrap_or(i64::MAX));
    if database.0 {
        sqlx::query(sql::BOOK).bind(call).bind(cents).execute(ctx.postgres().await?).await?;
    } else {
        sqlx::query(sql::BOOK).bind(call).bind(cents).execute(ctx.sqlite().await?).await?;
    }
    Ok(())
}

/// Blocks its thread, like a verb that calls synchronous code.
#[verb]
#[retry("20ms")]
async fn stalled(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Stall) -> Result {
    record_start(ctx, &ledger, "stalled").await?;
    std::thread::sleep(Duration::from_millis(event.0.ms));
    add_to_totals(record, &event.0);
    record_success(ctx, &ledger)
}

/// Closes the account and sends a receipt to an instance of another machine.
#[verb]
#[retry("20ms")]
async fn closed(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Close) -> Result {
    record_start(ctx, &ledger, "closed").await?;
    do_work(ctx, &ledger, &event.0).await?;
    add_to_totals(record, &event.0);
    let key = ctx.key().to_owned();
    ctx.send::<Receipt>(&key, Issue(Work { failures: 0, ..event.0 }))?;
    record_success(ctx, &ledger)
}

fsm! {
    /// An account through which money moves.
    pub machine Account = "account" {
        keeps Totals;
        start opened | wagered;
        any(opened, wagered, moved, booked, stalled) -> moved | booked | stalled | closed;
        end closed;
    }
}

#[verb]
#[retry("20ms")]
async fn issued(ctx: &mut Ctx<'_>, ledger: Data<Ledger>, event: Issue) -> Result {
    record_start(ctx, &ledger, "issued").await?;
    do_work(ctx, &ledger, &event.0).await?;
    record_success(ctx, &ledger)
}

fsm! {
    /// The receipt of a closed account.
    pub machine Receipt = "receipt" {
        start issued;
        end issued;
    }
}

/// The key of a till.
pub fn till_key(till: u64) -> String {
    format!("till-{till}")
}

/// The number of accounts of which a till remembers the last event.
const HEARD: usize = 200;

/// The events of one account arrive in the order in which it sent them.
#[verb]
#[retry("20ms")]
async fn counted(ctx: &mut Ctx<'_>, record: &mut Totals, ledger: Data<Ledger>, event: Count) -> Result {
    record_start(ctx, &ledger, "counted").await?;
    let Count { work, from } = event;
    record.cents += work.cents;
    let before = record.heard.iter().position(|(account, _)| *account == from).map(|index| record.heard.remove(index).1);
    if let Some(before) = before.filter(|before| *before >= work.n) {
        ledger.sure(&Line::Unexpected { says: format!("{} hears event {} of {from} after event {before}", ctx.key(), work.n) }).await?;
    }
    record.heard.push((from, work.n));
    record.heard.drain(..record.heard.len().saturating_sub(HEARD));
    record_success(ctx, &ledger)
}

fsm! {
    /// One of a few instances to which many accounts send, from every process.
    pub machine Till = "till" {
        keeps Totals;
        start counted;
        counted -> counted;
    }
}

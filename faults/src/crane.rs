//! The machine whose verbs run under limits: a crane lifts a box and parks it in a yard. Few cranes work at once, and one in each yard.

use std::io;

use fsm::LimitSetting;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Line};
use crate::load::now_us;
use crate::machine::{Work, do_work, record_start, record_success};

/// The number of cranes that lift at the same time.
pub const LIFTS: u32 = 3;
/// The number of cranes that park at the same time in one yard.
pub const PARKS_IN_A_YARD: u32 = 1;

/// Lifts a box for this yard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lift {
    #[serde(flatten)]
    pub work: Work,
    pub yard: String,
}
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Park(pub Work);

/// The record of a crane.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cargo {
    pub yard: String,
}

/// Records the start and the end, and works between them. Both are moments at which the verb runs.
async fn work_under(ctx: &Ctx<'_>, ledger: &Ledger, under: String, event: &Work) -> io::Result<()> {
    let (call, attempt) = (ctx.idempotency_key().to_owned(), ctx.attempt());
    ledger.note(&Line::LimitedWorkBegan { call: call.clone(), attempt, under, at_us: now_us() })?;
    let worked = do_work(ctx, ledger, event).await;
    ledger.note(&Line::LimitedWorkEnded { call, attempt, at_us: now_us() })?;
    worked
}

#[verb(limit = "cranes")]
#[retry("20ms")]
async fn lifted(ctx: &mut Ctx<'_>, record: &mut Cargo, ledger: Data<Ledger>, event: Lift) -> Result {
    record_start(ctx, &ledger, "lifted").await?;
    work_under(ctx, &ledger, "cranes".to_owned(), &event.work).await?;
    record.yard = event.yard;
    ctx.next(Park(Work { n: 1, failures: 0, ..event.work }))?;
    record_success(ctx, &ledger)
}

#[verb(limit = "yard")]
#[retry("20ms")]
async fn parked(ctx: &mut Ctx<'_>, record: &mut Cargo, ledger: Data<Ledger>, event: Park) -> Result {
    record_start(ctx, &ledger, "parked").await?;
    work_under(ctx, &ledger, format!("yard {}", record.yard), &event.0).await?;
    record_success(ctx, &ledger)
}

fsm! {
    /// A crane with one box.
    pub machine Crane = "crane" {
        keeps Cargo, search(yard);
        start lifted;
        lifted -> parked;
        end parked;
    }
}

/// The limits of the verbs.
pub fn limits() -> [(&'static str, LimitSetting); 2] {
    [("cranes", Limit::concurrency(LIFTS)), ("yard", Limit::concurrency(PARKS_IN_A_YARD).by("yard"))]
}

/// The boxes of a moment, each with the key of its crane. Two of four are for the first yard.
pub fn boxes(moment: &str) -> impl Iterator<Item = (String, Lift)> {
    let lift = |n: u32| {
        let work = Work { n: 0, cents: 1, ms: 5 + 4 * u64::from(n), failures: u32::from(n == 3), till: None };
        Lift { work, yard: format!("yard-{}", n.saturating_sub(1)) }
    };
    (0..4).map(move |n| (format!("{moment}/box-{n}"), lift(n)))
}

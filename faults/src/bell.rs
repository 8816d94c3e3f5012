//! The machine of a schedule: it rings every second, and sends boxes to cranes. Each moment has one instance, whose key is the moment.

use fsm::DeclaredSchedule;
use fsm::prelude::*;
use serde::{Deserialize, Serialize};

use crate::crane::{Crane, boxes};
use crate::ledger::Ledger;
use crate::machine::{Work, do_work, record_start, record_success};

/// The time between two moments, in seconds.
pub const SECONDS: i64 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ring(pub Work);

#[verb]
#[retry("20ms")]
async fn rung(ctx: &mut Ctx<'_>, ledger: Data<Ledger>, event: Ring) -> Result {
    record_start(ctx, &ledger, "rung").await?;
    do_work(ctx, &ledger, &event.0).await?;
    let moment = ctx.key().to_owned();
    for (key, lift) in boxes(&moment) {
        ctx.send::<Crane>(key, lift)?;
    }
    record_success(ctx, &ledger)
}

fsm! {
    /// A moment of the schedule.
    pub machine Bell = "bell" {
        start rung;
        end rung;
    }
}

/// The schedule. Missed moments are made up for, so that none is missing.
pub fn schedule() -> DeclaredSchedule {
    let ring = |due: &fsm::Due| {
        let second = due.at().as_micros() / 1_000_000;
        (format!("moment-{second}"), Ring(Work { n: 0, cents: 1, ms: 2, failures: 0, till: None }))
    };
    Schedule::every("1s").name("bell").send::<Bell>(ring).missed(Missed::All)
}

/// The moment of a key, in seconds since 1970.
pub fn moment(key: &str) -> Option<i64> {
    key.strip_prefix("moment-")?.parse().ok()
}

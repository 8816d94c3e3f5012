//! Schedules, as the product page declares them.

use fsm::prelude::*;
use fsm::testing::TestBed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StartReport {
    pub day: fsm::jiff::civil::Date,
}

#[verb]
pub async fn reported(_event: StartReport) -> Result {
    Ok(())
}

fsm! { pub machine Report = "contract-report" { start reported; end reported; } }

#[rustfmt::skip]
fn declared() -> fsm::Builder {
    Runtime::builder().schedule(
        Schedule::cron("nightly-report", "0 2 * * *").time_zone("Europe/Berlin")
            .send::<Report>(|due| (format!("report-{}", due.date()), StartReport { day: due.date() }))
            .missed(Missed::Latest))                                   // or All, Skip
}

#[tokio::test]
async fn a_schedule_sends_its_events() {
    let every = Schedule::every("5m").send::<Report>(|due| (due.at().to_string(), StartReport { day: due.date() }));
    let bed = TestBed::builder().only::<Report>().with(|builder| builder.schedule(every)).sqlite().await;
    bed.advance(Duration::from_secs(600)).await;
    assert_eq!(bed.machine::<Report>().list(Filter::default()).await.unwrap().items.len(), 2);
    let runtime = declared().only::<Report>().database("sqlite::memory:").start().await.unwrap();
    runtime.shutdown().await.unwrap();
}

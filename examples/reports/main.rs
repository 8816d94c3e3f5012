//! Nightly reports in a time zone: a cron schedule over a change of the clock, and what happens to the nights without a running process.
//!
//! ```sh
//! cargo run --example reports
//! ```
//!
//! Two weeks pass in a second, under the clock of a test bed. A program that runs for years builds a `Runtime` with the same schedules instead.
//!
//! The program exits with status 1 if a report is missing or was written twice.

use std::process::ExitCode;

use fsm::jiff::civil::Date;
use fsm::prelude::*;
use fsm::testing::{TestBed, TestBedBuilder};
use fsm::{DeclaredSchedule, Due};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StartReport {
    day: Date,
}

/// Writes the report of a day. An error is retried until the report is there.
#[verb]
#[retry("1m", "1h")]
async fn written(event: StartReport) -> Result {
    println!("  report of {}", event.day);
    Ok(())
}

fsm! {
    machine Report = "report" {
        start written;
        end written;
    }
}

/// The key has the day, so that a person who triggers the schedule does not get a second report of the same day.
fn report_of_yesterday(due: &Due) -> (String, StartReport) {
    let day = due.date().yesterday().expect("the calendar begins long before");
    (format!("report-{day}"), StartReport { day })
}

fn nightly(missed: Missed) -> DeclaredSchedule {
    Schedule::cron("nightly-report", "30 2 * * *").time_zone("Europe/Berlin").send::<Report>(report_of_yesterday).missed(missed)
}

fn reporting(missed: Missed) -> TestBedBuilder {
    TestBed::builder().only::<Report>().schedule(nightly(missed))
}

/// Five nights, four nights without a process, and five nights. Returns the keys of all reports.
async fn two_weeks(missed: Missed) -> Result<Vec<String>, fsm::Error> {
    let bed = reporting(missed).sqlite().await;
    bed.advance(DAY * 5).await;
    println!("  no process for four days");
    bed.outage(DAY * 4).await;
    bed.run_until_idle().await;
    bed.advance(DAY * 5).await;
    let page = bed.machine::<Report>().list(Filter::default().limit(100)).await?;
    let mut keys: Vec<_> = page.items.into_iter().map(|report| report.key).collect();
    keys.sort();
    Ok(keys)
}

async fn run() -> Result<bool, fsm::Error> {
    let mut is_well = true;
    for (missed, expected) in [(Missed::Latest, 11), (Missed::All, 14), (Missed::Skip, 10)] {
        println!("\nfourteen nights; of the missed ones `{missed}` is sent:");
        let reports = two_weeks(missed).await?;
        is_well &= reports.len() == expected;
    }
    println!("\n{}", if is_well { "Every report was written once." } else { "THE REPORTS ARE NOT AS EXPECTED." });
    Ok(is_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reports: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_four_missed_nights_the_latest_all_or_none_are_reported() {
        for (missed, expected) in [(Missed::Latest, 11), (Missed::All, 14), (Missed::Skip, 10)] {
            let reports = two_weeks(missed).await.expect("the database works");
            assert_eq!(reports.len(), expected, "{missed}: {reports:?}");
        }
    }
}

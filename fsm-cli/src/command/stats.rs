//! `fsm stats`: shows rates, durations and delays of the newest calls, and overdue attempts.

use std::time::Duration;

use fsm_core::call::AttemptState;
use fsm_core::time::{Timestamp, micros};
use fsm_runtime::admin::whole::WholeDatabase;
use fsm_store::overview::Times;
use serde_json::{Value, json};

use super::session::Session;
use crate::args::Stats;
use crate::problem::Problem;
use crate::stage::{apart, short};
use crate::table::{BAD, Cell, OPEN, Table};

/// The maximum number of overdue attempts that are counted.
const MOST: u32 = 10_000;

/// The figures of the attempts of one machine.
#[derive(Default)]
struct Tally {
    ended: usize,
    failed: usize,
    /// The durations of the attempts, ascending.
    took: Vec<Duration>,
    /// The delays between due time and start, ascending.
    late: Vec<Duration>,
}

pub(super) async fn run(session: &mut Session<'_, '_>, stats: &Stats) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    look(session, &database, stats).await?;
    while let Some(pause) = stats.watch {
        session.check_partitions(&database)?;
        session.stage.flush()?;
        tokio::time::sleep(pause).await;
        session.stage.clear()?;
        look(session, &database, stats).await?;
    }
    session.check_partitions(&database)
}

async fn look(session: &mut Session<'_, '_>, database: &WholeDatabase, stats: &Stats) -> Result<(), Problem> {
    let now = database.now();
    let newest = database.newest(stats.sample).await?;
    // If the sample is full, it may cover less than the window. The window is then reduced to the time that it covers.
    let is_full = newest.len() >= stats.sample as usize;
    let reaches = newest.iter().map(|times| times.created_at).min().filter(|_| is_full).unwrap_or_default();
    let since = (now - stats.window).max(reaches);
    let minutes = now.since(since).as_secs_f64() / 60.0;
    let mut table = Table::new(&["MACHINE", "ENDED", "A MINUTE", "FAILED", "TOOK", "95%", "LATE BY", "95%", "DUE", "SINCE"]);
    let mut all = Vec::new();
    for known in database.selected(stats.machine.as_deref())? {
        let machine = known.machine.name.as_str();
        let tally = Tally::of(newest.iter().filter(|times| times.machine == machine), since);
        let overdue = database.overdue(machine, MOST).await?;
        let rate = if minutes > 0.0 { tally.ended as f64 / minutes } else { 0.0 };
        if session.is_json {
            all.push(tally.as_json(machine, rate, overdue.attempts, overdue.since));
            continue;
        }
        let span = |spans: &[Duration], share| quantile(spans, share).map_or("-".to_owned(), short);
        let count = tally.failed.to_string();
        table.row([
            Cell::from(machine),
            Cell::from(tally.ended.to_string()),
            Cell::from(format!("{rate:.1}")),
            if tally.failed > 0 { Cell::styled(count, BAD) } else { Cell::from(count) },
            Cell::from(span(&tally.took, 0.5)),
            Cell::from(span(&tally.took, 0.95)),
            Cell::from(span(&tally.late, 0.5)),
            Cell::from(span(&tally.late, 0.95)),
            if overdue.attempts > 0 { Cell::styled(overdue.attempts.to_string(), OPEN) } else { Cell::from("0") },
            Cell::from(overdue.since.map_or("-".to_owned(), |since| session.stage.moment(since, now))),
        ]);
    }
    if session.is_json {
        return session
            .stage
            .json(&json!({ "since": since.to_string(), "until": now.to_string(), "machines": all, "due_counted_up_to": MOST }));
    }
    session.stage.table(&table)?;
    let cut = if since == reaches { ", as far as the sample reaches" } else { "" };
    session.stage.say(&format!("attempts that ended since {since}, {}{cut}", apart(since, now)));
    Ok(())
}

impl Tally {
    fn of<'t>(times: impl Iterator<Item = &'t Times>, since: Timestamp) -> Tally {
        let mut tally = Tally::default();
        for one in times {
            let (Some(started), Some(finished)) = (one.started_at, one.finished_at) else { continue };
            if finished < since {
                continue;
            }
            tally.ended += 1;
            tally.failed += usize::from(matches!(one.state, AttemptState::Error | AttemptState::Lost));
            tally.took.push(finished.since(started));
            tally.late.push(started.since(one.scheduled_at));
        }
        tally.took.sort();
        tally.late.sort();
        tally
    }

    fn as_json(&self, machine: &str, rate: f64, due: u64, due_since: Option<Timestamp>) -> Value {
        let us = |spans: &[Duration], share| quantile(spans, share).map(micros);
        json!({
            "machine": machine,
            "ended": self.ended,
            "failed": self.failed,
            "ended_a_minute": rate,
            "took_p50_us": us(&self.took, 0.5),
            "took_p95_us": us(&self.took, 0.95),
            "late_p50_us": us(&self.late, 0.5),
            "late_p95_us": us(&self.late, 0.95),
            "due": due,
            "due_since": due_since.map(|at| at.to_string()),
        })
    }
}

/// The quantile of ascending durations: the shortest one that at least this share of them does not exceed.
fn quantile(spans: &[Duration], share: f64) -> Option<Duration> {
    let place = (spans.len() as f64 * share).ceil() as usize;
    spans.get(place.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_spans() {
        let spans: Vec<_> = (1..=20).map(Duration::from_secs).collect();
        assert_eq!(quantile(&spans, 0.5), Some(Duration::from_secs(10)));
        assert_eq!(quantile(&spans, 0.95), Some(Duration::from_secs(19)));
        assert_eq!(quantile(&spans[..1], 0.95), Some(Duration::from_secs(1)));
        assert_eq!(quantile(&[], 0.5), None);
    }
}

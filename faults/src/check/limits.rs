//! The rules of limits: the ledgers say when each call ran.

use std::collections::{BTreeMap, HashMap};

use super::case::Case;
use crate::crane::{LIFTS, PARKS_IN_A_YARD};
use crate::ledger::Line;

/// The moments at which more and less run, in their order: at each, less before more.
type Moments = Vec<(u64, i64)>;

/// At no moment more calls of a limit, or of one value, ran than it admits.
pub(super) fn calls_fit(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (under, mut moments) in runs(case) {
        moments.sort_unstable();
        let most = i64::from(if under == "cranes" { LIFTS } else { PARKS_IN_A_YARD });
        let mut running = 0;
        for (at_us, change) in moments {
            running += change;
            if running > most {
                broken.push(format!("{running} calls ran under {under} at {at_us}, which admits {most}"));
            }
        }
    }
    broken
}

/// The moments of each limit, and of each value.
fn runs<'a>(case: &Case<'a>) -> BTreeMap<&'a str, Moments> {
    let mut runs: BTreeMap<&str, Moments> = BTreeMap::new();
    for of_process in case.ledgers {
        let mut open: HashMap<(&str, u32), (&str, u64)> = HashMap::new();
        let mut last_us = 0;
        for line in &of_process.lines {
            match line {
                Line::LimitedWorkBegan { call, attempt, under, at_us } => {
                    open.insert((call, *attempt), (under, *at_us));
                    last_us = *at_us;
                }
                Line::LimitedWorkEnded { call, attempt, at_us } => {
                    last_us = *at_us;
                    if let Some((under, since)) = open.remove(&(call.as_str(), *attempt)) {
                        add(&mut runs, under, (since, taken_over(case, call, *attempt).map_or(*at_us, |at| at.min(*at_us))));
                    }
                }
                _ => {}
            }
        }
        // The process was killed during these calls, and lived at least until its last line.
        for ((call, attempt), (under, since)) in open {
            add(&mut runs, under, (since, taken_over(case, call, attempt).map_or(last_us, |at| at.min(last_us))));
        }
    }
    runs
}

fn add<'a>(runs: &mut BTreeMap<&'a str, Moments>, under: &'a str, (from, until): (u64, u64)) {
    if until > from {
        runs.entry(under).or_default().extend([(from, 1), (until, -1)]);
    }
}

/// The moment at which another process took the attempt for lost. A process whose lease has expired may not know it yet.
fn taken_over(case: &Case<'_>, call: &str, attempt: u32) -> Option<u64> {
    let lost = case.attempts_by_call.get(call)?.iter().find(|one| one.number == i64::from(attempt) && one.state == "lost")?;
    u64::try_from(lost.finished_at?).ok()
}

/// No call holds a place of a limit, or waits for one.
pub(super) fn no_place_is_held(case: &Case<'_>) -> Vec<String> {
    case.rows.held.iter().map(|under| format!("a place of {under} is held, or waited for")).collect()
}

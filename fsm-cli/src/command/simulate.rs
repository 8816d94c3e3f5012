//! `fsm simulate`: shows a retry policy as a table of attempts.

use std::time::Duration;

use fsm_core::duration::{self, display};
use fsm_core::machine::Wait;
use fsm_core::retry::{Next, Retry, RetryAdvice, RetryState};
use fsm_core::retry_schedule::{Planned, Warning};
use fsm_core::time::Timestamp;
use serde_json::{Value, json};

use super::session::Session;
use crate::args::Simulate;
use crate::problem::Problem;
use crate::table::{Cell, GOOD, Table};

/// The maximum number of attempts that are computed.
const MOST_ATTEMPTS: usize = 1_000_000;

/// The policy, and the timer of the state in which the attempts are made.
struct Subject {
    policy: Retry,
    timer: Option<Duration>,
}

pub(super) async fn run(session: &mut Session<'_, '_>, simulate: &Simulate) -> Result<(), Problem> {
    let Subject { mut policy, timer } = match typed(&simulate.words)? {
        Some(policy) => Subject { policy, timer: None },
        None => kept(session, &simulate.words).await?,
    };
    policy.jitter = simulate.jitter.unwrap_or(policy.jitter);
    policy.within = simulate.within.or(policy.within);
    let is_endless = policy.max_attempts.is_none() && policy.within.is_none();
    if !is_endless && policy.schedule().attempts().nth(MOST_ATTEMPTS).is_some() {
        return Err(Problem::Usage(format!("the policy comes to more than {MOST_ATTEMPTS} attempts; simulate one with fewer")));
    }
    let rows = simulate.rows as usize;
    let (mut attempts, latest) = (policy.schedule().attempts(), latest(&policy));
    let shown: Vec<(Planned, Option<Planned>)> = {
        let mut latest = latest.take(rows);
        attempts.by_ref().take(rows).map(|planned| (planned, latest.next())).collect()
    };
    let goes_on = attempts.next().is_some();
    let warnings = policy.schedule().warnings(timer);
    let recovery = simulate.outage.map(|outage| (outage, recovery(&policy, outage)));
    if session.is_json {
        let answer = answer(&policy, &shown, goes_on, &warnings, recovery);
        return session.stage.json(&answer);
    }
    let mut table = match policy.jitter > 0.0 {
        true => Table::new(&["ATTEMPT", "WAIT", "AT", "AT THE LATEST"]),
        false => Table::new(&["ATTEMPT", "WAIT", "AT"]),
    };
    for (planned, latest) in &shown {
        let succeeds = recovery.is_some_and(|(_, recovered)| recovered.is_some_and(|recovered| recovered.attempt == planned.attempt));
        let number = planned.attempt.to_string();
        let mut row = vec![if succeeds { Cell::styled(number, GOOD) } else { Cell::from(number) }];
        row.push(Cell::from(if planned.attempt == 1 { "-".into() } else { display(planned.wait) }));
        row.push(Cell::from(display(planned.at)));
        if policy.jitter > 0.0 {
            row.push(Cell::from(latest.map_or("-".into(), |latest| display(latest.at))));
        }
        table.row(row);
    }
    session.stage.table(&table)?;
    for line in talk(&policy, goes_on, &warnings, recovery) {
        session.stage.say(&line);
    }
    Ok(())
}

/// Parses the policy as it is written in `#[retry(…)]`. `None` if the words name a machine and a verb.
fn typed(words: &[String]) -> Result<Option<Retry>, Problem> {
    let count = words[0].parse::<u32>();
    let delays = if count.is_ok() { &words[1..] } else { words };
    if count.is_err() && !words[0].starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(None);
    }
    let span = |word: &String| duration::parse(word).map_err(|error| Problem::Usage(format!("{error}; {}", duration::NotADuration::HELP)));
    let policy = match delays {
        [every] => Retry::every(span(every)?),
        [min, max] => Retry::doubling(span(min)?, span(max)?),
        _ => return Err(Problem::Usage("a policy is `[RETRIES] MIN [MAX]`, like `10 5s 1h`, or a machine and its verb".into())),
    };
    if policy.min > policy.max {
        let (min, max) = (display(policy.min), display(policy.max));
        return Err(Problem::Usage(format!("the first wait, {min}, is longer than the maximum, {max}; give the shorter one first")));
    }
    Ok(Some(match count {
        Ok(retries) => policy.retries_at_most(retries),
        Err(_) => policy,
    }))
}

/// The policy of a verb in the database.
async fn kept(session: &Session<'_, '_>, words: &[String]) -> Result<Subject, Problem> {
    let [name, verb] = words else {
        return Err(Problem::Usage("give a policy, like `10 5s 1h`, or a machine and its verb".into()));
    };
    let database = session.to_read_all().await?;
    let machine = &database.machine(name)?.machine;
    let Some(found) = machine.verb(verb) else {
        let verbs: Vec<_> = machine.verbs.iter().map(|verb| format!("`{}`", verb.name)).collect();
        return Err(Problem::NotFound(format!("`{name}` has no verb `{verb}`; it has {}", verbs.join(", "))));
    };
    let Some(policy) = found.retry.clone() else {
        return Err(Problem::NotFound(format!("`{verb}` of `{name}` has no retry policy: its first failure is its last")));
    };
    let from = machine.edges.iter().filter(|edge| edge.verb() == *verb).filter_map(|edge| edge.from.as_deref());
    let fixed = from.filter_map(|state| match machine.timer(state)?.after {
        Some(Wait::Fixed(wait)) => Some(wait),
        _ => None,
    });
    let timer = fixed.min();
    Ok(Subject { policy, timer })
}

/// The attempts with the maximum jitter.
fn latest(policy: &Retry) -> impl Iterator<Item = Planned> {
    let first = Planned { attempt: 1, wait: Duration::ZERO, at: Duration::ZERO };
    let start = Timestamp::default();
    std::iter::successors(Some((first, RetryState::fresh(Some(policy.clone()), start))), move |(last, retry_state)| {
        match retry_state.after(RetryAdvice::Default, start + last.at, 1.0) {
            Next::Again { wait, retry_state } => {
                Some((Planned { attempt: last.attempt.saturating_add(1), wait, at: last.at + wait }, *retry_state))
            }
            Next::Exhausted(_) => None,
        }
    })
    .map(|(planned, _)| planned)
}

/// The first attempt after an outage; `None` if all attempts are before its end.
fn recovery(policy: &Retry, outage: Duration) -> Option<Planned> {
    policy.schedule().attempts().take(MOST_ATTEMPTS).find(|planned| planned.at >= outage)
}

fn talk(policy: &Retry, goes_on: bool, warnings: &[Warning], recovery: Option<(Duration, Option<Planned>)>) -> Vec<String> {
    let mut lines = Vec::new();
    match policy.schedule().total() {
        Some(total) => lines.push(format!("{} attempts within {}", policy.schedule().attempts().count(), display(total))),
        None => lines.push("and so on, without end".into()),
    }
    if goes_on && policy.schedule().total().is_some() {
        lines.push("not all of them are shown: say how many with `--rows`".into());
    }
    if let Some(delay) = &policy.delay {
        lines.push(format!("the program's own function `{delay}` decides the waits instead: they are not known here"));
    }
    if let Some((outage, recovered)) = recovery {
        let outage_is = display(outage);
        lines.push(match recovered {
            Some(planned) => {
                let later = display(planned.at - outage);
                format!("an outage of {outage_is}: attempt {} succeeds, {later} after its end", planned.attempt)
            }
            None => format!("an outage of {outage_is}: every attempt is made before its end, and the call is exhausted"),
        });
    }
    lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
    lines
}

fn answer(
    policy: &Retry,
    shown: &[(Planned, Option<Planned>)],
    goes_on: bool,
    warnings: &[Warning],
    recovery: Option<(Duration, Option<Planned>)>,
) -> Value {
    let us = |span: Duration| fsm_core::time::micros(span);
    let attempts: Vec<_> = shown
        .iter()
        .map(|(planned, latest)| {
            let latest_us = latest.map(|latest| us(latest.at));
            json!({ "attempt": planned.attempt, "wait_us": us(planned.wait), "at_us": us(planned.at), "at_latest_us": latest_us })
        })
        .collect();
    let outage = recovery.map(|(outage, recovered)| {
        json!({
            "outage_us": us(outage),
            "attempt": recovered.map(|planned| planned.attempt),
            "later_us": recovered.map(|planned| us(planned.at - outage)),
        })
    });
    json!({
        "policy": policy,
        "attempts": attempts,
        "more": goes_on,
        "total_us": policy.schedule().total().map(us),
        "warnings": warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "outage": outage,
    })
}

//! Compares the ledgers with the rows of the database. Each rule is a function that returns a sentence for each violation.

mod case;
mod families;
mod limits;

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use self::case::Case;
use crate::bell::{SECONDS, moment};
use crate::ledger::{Line, ProcessLedger};
use crate::machine::till_key;
use crate::rows::{Attempt, Instance, Rows};

/// The maximum number of violations of one rule that are reported.
const MAX_SHOWN: usize = 5;

type Rule = (&'static str, fn(&Case<'_>) -> Vec<String>);

const RULES: [Rule; 19] = [
    ("no process heard what must never be heard", no_unexpected_answer),
    ("what was acknowledged is there", acknowledged_events_exist),
    ("the same dedup id always got the same call", a_dedup_id_names_one_call),
    ("every event was asked for, and none is taken twice", no_event_is_taken_twice),
    ("no call succeeds twice", no_call_succeeds_twice),
    ("events of one instance are taken in order", events_are_taken_in_order),
    ("every execution had its attempt, and no attempt was executed twice", executions_were_granted),
    ("a session belongs to one process", a_session_is_one_process),
    ("what succeeded was executed", successes_were_executed),
    ("no success is recorded as a failure", successes_are_recorded),
    ("without a policy nothing runs twice", wagers_run_once),
    ("records and rows of the verbs' own add up", money_adds_up),
    ("each closed account has one receipt", receipts_match),
    ("each till counted what it was sent", tills_match),
    ("each basket was called after its last item, and none goes on", families::baskets_match),
    ("each moment of the schedule was sent once, and none is missing", moments_follow),
    ("no more calls ran at once than their limit admits", limits::calls_fit),
    ("no place of a limit is held in the end", limits::no_place_is_held),
    ("each instance came to its end", instances_ended),
];

/// Checks all rules. Returns the violated rules, each with some of its violations.
pub fn check(ledgers: &[ProcessLedger], rows: &Rows) -> Vec<String> {
    let case = Case::new(ledgers, rows);
    let mut findings = Vec::new();
    for (says, rule) in RULES {
        let broken = rule(&case);
        if !broken.is_empty() {
            let shown = broken.iter().take(MAX_SHOWN).map(|one| format!("\n      {one}")).collect::<String>();
            findings.push(format!("not so: {says} ({} times){shown}", broken.len()));
        }
    }
    findings
}

fn no_unexpected_answer(case: &Case<'_>) -> Vec<String> {
    let surprise = |line: &Line| if let Line::Unexpected { says } = line { Some(says.clone()) } else { None };
    let rejected = case.rows.rejected.iter().map(|(call, why)| format!("call {call} was rejected: {why}"));
    case.lines().filter_map(surprise).chain(rejected).collect()
}

fn acknowledged_events_exist(case: &Case<'_>) -> Vec<String> {
    let waits = |key: &str| case.rows.instances.values().any(|one| one.key == key && one.machine == "account" && one.status == "error");
    let mut broken = Vec::new();
    for line in case.lines() {
        let Line::Acknowledged { key, n, call, .. } = line else { continue };
        match case.attempts_by_call.get(call.as_str()).and_then(|attempts| case.instance(attempts[0].instance)) {
            Some(instance) if instance.key == *key => {}
            Some(instance) => broken.push(format!("event {n} of {key} was acknowledged, and is {}'s", instance.key)),
            // An instance in error keeps its inbox until an operator acts.
            None if waits(key) => {}
            None => broken.push(format!("event {n} of {key} was acknowledged as call {call}, and is not there")),
        }
    }
    broken
}

fn a_dedup_id_names_one_call(case: &Case<'_>) -> Vec<String> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let mut broken = Vec::new();
    for line in case.lines() {
        let Line::Acknowledged { dedup: Some(dedup), call, .. } = line else { continue };
        let before = first.entry(dedup).or_insert(call);
        if before != call {
            broken.push(format!("{dedup} got {before} and {call}"));
        }
    }
    broken
}

fn no_event_is_taken_twice(case: &Case<'_>) -> Vec<String> {
    let asked: HashSet<(&str, u32)> =
        case.lines().filter_map(|line| if let Line::SendBegun { key, n } = line { Some((key.as_str(), *n)) } else { None }).collect();
    let mut seen = HashSet::new();
    let mut broken = Vec::new();
    for (call, attempts) in &case.attempts_by_call {
        // No sender sends the end of all items.
        if attempts[0].verb == "assembled" {
            continue;
        }
        let (Some(instance), Some(work)) = (case.instance(attempts[0].instance), &attempts[0].work) else {
            broken.push(format!("call {call} has no instance or no event"));
            continue;
        };
        // A till receives events of many accounts. Another rule compares its amounts.
        if instance.machine != "till" && !seen.insert((&*instance.machine, &*instance.key, work.n)) {
            broken.push(format!("event {} of {} {} is taken twice", work.n, instance.machine, instance.key));
        }
        if !matches!(&*instance.machine, "till" | "item" | "bell" | "crane") && !asked.contains(&(&*instance.key, work.n)) {
            broken.push(format!("event {} of {} {} comes from nowhere", work.n, instance.machine, instance.key));
        }
    }
    broken
}

fn no_call_succeeds_twice(case: &Case<'_>) -> Vec<String> {
    let successes = |attempts: &[&Attempt]| attempts.iter().filter(|attempt| attempt.state == "success").count();
    let twice = case.attempts_by_call.iter().filter(|(_, attempts)| successes(attempts) > 1);
    twice.map(|(call, attempts)| format!("`{}` succeeded {} times in call {call}", attempts[0].verb, successes(attempts))).collect()
}

fn events_are_taken_in_order(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for instance in case.rows.instances.values() {
        let Some(record) = &instance.record else { continue };
        if !record.taken.is_sorted_by(|one, next| one < next) {
            broken.push(format!("{} took {:?}", instance.key, record.taken));
        }
    }
    broken
}

fn executions_were_granted(case: &Case<'_>) -> Vec<String> {
    let mut executed = HashSet::new();
    let mut broken = Vec::new();
    for line in case.lines() {
        match line {
            Line::AttemptStarted { key, call, attempt, verb } => {
                let granted =
                    case.attempts_by_call.get(call.as_str()).and_then(|all| all.iter().find(|one| one.number == i64::from(*attempt)));
                let fits = granted.is_some_and(|granted| {
                    granted.verb == *verb && granted.worker.is_some() && case.instance(granted.instance).is_some_and(|of| of.key == *key)
                });
                if !fits {
                    broken.push(format!("`{verb}` of {key} ran as attempt {attempt} of call {call}, which was never granted"));
                }
                if !executed.insert((call.as_str(), *attempt)) {
                    broken.push(format!("attempt {attempt} of call {call} was executed twice"));
                }
            }
            Line::MoneyMoved { call, attempt, cents } if !executed.contains(&(call.as_str(), *attempt)) => {
                broken.push(format!("{cents} were moved under {call} by attempt {attempt}, which did not run"));
            }
            _ => {}
        }
    }
    broken
}

fn a_session_is_one_process(case: &Case<'_>) -> Vec<String> {
    let mut processes: HashMap<&str, &str> = HashMap::new();
    let mut broken = Vec::new();
    for of_process in case.ledgers {
        for line in &of_process.lines {
            let Line::AttemptStarted { call, attempt, .. } = line else { continue };
            let granted = case.attempts_by_call.get(call.as_str()).and_then(|all| all.iter().find(|one| one.number == i64::from(*attempt)));
            let Some(session) = granted.and_then(|granted| granted.worker.as_deref()) else { continue };
            let owner = processes.entry(session).or_insert(&of_process.process);
            if *owner != of_process.process {
                broken.push(format!(
                    "attempt {attempt} of {call} is session {session}'s, which is {owner}, and ran in {}",
                    of_process.process
                ));
            }
        }
    }
    broken
}

fn successes_were_executed(case: &Case<'_>) -> Vec<String> {
    let granted: HashSet<(&str, i64)> = case
        .lines()
        .filter_map(
            |line| if let Line::AttemptStarted { call, attempt, .. } = line { Some((call.as_str(), i64::from(*attempt))) } else { None },
        )
        .collect();
    let ended = case.rows.attempts.iter().filter(|attempt| attempt.state == "success" || attempt.state == "error");
    let unseen = ended.filter(|attempt| !granted.contains(&(attempt.call.as_str(), attempt.number)));
    unseen.map(|one| format!("attempt {} of `{}` ended as {} and never ran: call {}", one.number, one.verb, one.state, one.call)).collect()
}

/// A worker may die, or its lease may expire, after its verb has ended. The attempt is then lost, but never a failure.
fn successes_are_recorded(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for line in case.lines() {
        let Line::Succeeded { call, attempt } = line else { continue };
        let recorded = case.attempts_by_call.get(call.as_str()).and_then(|all| all.iter().find(|one| one.number == i64::from(*attempt)));
        if let Some(recorded) = recorded.filter(|recorded| recorded.state == "error") {
            broken.push(format!("attempt {attempt} of `{}` succeeded and is recorded as a failure: call {call}", recorded.verb));
        }
    }
    broken
}

fn wagers_run_once(case: &Case<'_>) -> Vec<String> {
    let mut runs: HashMap<&str, u32> = HashMap::new();
    for line in case.lines() {
        if let Line::AttemptStarted { call, verb, .. } = line
            && verb == "wagered"
        {
            *runs.entry(call).or_default() += 1;
        }
    }
    runs.into_iter().filter(|(_, runs)| *runs > 1).map(|(call, runs)| format!("call {call} ran {runs} times")).collect()
}

fn money_adds_up(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let taken = case.successes_by_instance();
    for (id, instance) in &case.rows.instances {
        let successes = taken.get(id).map_or(&[][..], Vec::as_slice);
        if instance.version != i64::try_from(successes.len()).unwrap_or(i64::MAX) {
            broken.push(format!(
                "{} {} is at version {} after {} successes",
                instance.machine,
                instance.key,
                instance.version,
                successes.len()
            ));
        }
        if !matches!(&*instance.machine, "account" | "purchase") {
            continue;
        }
        let record = instance.record.clone().unwrap_or_default();
        let (events, cents): (Vec<u32>, u64) = (successes.iter().map(|(_, n, _)| *n).collect(), successes.iter().map(|(.., c)| *c).sum());
        if record.taken != events || record.cents != cents {
            broken.push(format!(
                "{} has {} of {:?}, and its transitions say {cents} of {events:?}",
                instance.key, record.cents, record.taken
            ));
        }
    }
    let mut booked: HashMap<&str, Vec<i64>> = HashMap::new();
    for (call, cents) in &case.rows.books {
        booked.entry(call).or_default().push(*cents);
    }
    for (attempt, _, cents) in taken.values().flatten().filter(|(attempt, ..)| attempt.verb == "booked") {
        let rows = booked.remove(attempt.call.as_str()).unwrap_or_default();
        if rows != [i64::try_from(*cents).unwrap_or(i64::MAX)] {
            broken.push(format!("call {} booked {cents}, and its rows are {rows:?}", attempt.call));
        }
    }
    broken.extend(booked.into_keys().map(|call| format!("call {call} did not succeed, and has a row")));
    broken
}

fn receipts_match(case: &Case<'_>) -> Vec<String> {
    let of = |machine: &'static str, state: &'static str| {
        let all = case.rows.instances.values().filter(move |one| one.machine == machine);
        all.filter(move |one| one.state.as_deref() == Some(state)).map(|one| one.key.as_str()).collect::<HashSet<_>>()
    };
    let (closed, issued) = (of("account", "closed"), of("receipt", "issued"));
    closed.symmetric_difference(&issued).map(|key| format!("{key} is closed or has a receipt, not both")).collect()
}

fn tills_match(case: &Case<'_>) -> Vec<String> {
    let (mut sent, mut counted): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    for attempt in case.successes_by_instance().values().flatten().map(|(attempt, ..)| attempt).filter(|attempt| attempt.verb == "moved") {
        let work = case.attempts_by_call.get(attempt.call.as_str()).and_then(|all| all[0].work.as_ref());
        if let Some((till, cents)) = work.and_then(|work| Some((work.till?, work.cents))) {
            *sent.entry(till_key(till)).or_default() += cents;
        }
    }
    for till in case.rows.instances.values().filter(|one| one.machine == "till") {
        counted.insert(till.key.clone(), till.record.as_ref().map_or(0, |record| record.cents));
    }
    if sent == counted { Vec::new() } else { vec![format!("sent: {sent:?}, counted: {counted:?}")] }
}

/// The key of an instance is its moment, so that no moment has two of them.
fn moments_follow(case: &Case<'_>) -> Vec<String> {
    let bells = case.rows.instances.values().filter(|one| one.machine == "bell");
    let mut moments: Vec<i64> = bells.filter_map(|bell| moment(&bell.key)).collect();
    moments.sort_unstable();
    let gaps = moments.windows(2).filter(|pair| pair[1] - pair[0] != SECONDS);
    gaps.map(|pair| format!("the moment {} follows {}", pair[1], pair[0])).collect()
}

fn instances_ended(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (id, instance) in &case.rows.instances {
        let Instance { key, machine, status, .. } = instance;
        let is_closed = matches!(
            instance.state.as_deref(),
            Some("closed" | "issued" | "cancelled" | "refunded" | "assembled" | "packed" | "rung" | "parked")
        );
        match status.as_str() {
            "completed" if is_closed && instance.waiting == 0 => {}
            "cancelled" if matches!(&**machine, "basket" | "item") && instance.waiting == 0 => {}
            // Its sender ended before it had sent everything.
            "running" if !is_closed && instance.waiting == 0 => {}
            "error" => broken.extend(is_rightly_in_error(case, *id, instance).err()),
            _ => broken.push(format!("{machine} {key} is {status} in {:?} with {} events waiting", instance.state, instance.waiting)),
        }
    }
    for attempt in case.rows.attempts.iter().filter(|attempt| matches!(attempt.state.as_str(), "scheduled" | "executing")) {
        broken.push(format!("attempt {} of `{}` is {}", attempt.number, attempt.verb, attempt.state));
    }
    let taken: HashSet<&str> = case.rows.succeeded();
    for line in case.lines() {
        let Line::Acknowledged { key, n, call, .. } = line else { continue };
        let is_in_error = || {
            case.attempts_by_call.get(call.as_str()).and_then(|all| case.instance(all[0].instance)).is_some_and(|of| of.status == "error")
        };
        if case.attempts_by_call.contains_key(call.as_str())
            && !taken.contains(call.as_str())
            && !is_in_error()
            && !is_interrupted(case, call)
        {
            broken.push(format!("event {n} of {key} was acknowledged and never taken"));
        }
    }
    broken
}

/// The charge of a purchase that was cancelled may have been interrupted, and then it has not succeeded. The same holds for a basket that an
/// operator cancelled.
fn is_interrupted(case: &Case<'_>, call: &str) -> bool {
    case.attempts_by_call.get(call).is_some_and(|attempts| {
        if case.instance(attempts[0].instance).is_some_and(|basket| basket.machine == "basket" && basket.status == "cancelled") {
            return true;
        }
        let is_cancelled = case.instance(attempts[0].instance).is_some_and(|purchase| purchase.state.as_deref() == Some("cancelled"));
        is_cancelled && attempts[0].verb == "charged"
    })
}

/// Only a wager has no retry policy, so only a wager may end in error: its process died, or its outcome could not be reported.
fn is_rightly_in_error(case: &Case<'_>, id: Uuid, instance: &Instance) -> Result<(), String> {
    match case.attempts_by_instance.get(&id).map_or(&[][..], Vec::as_slice) {
        [one] if one.verb == "wagered" && matches!(one.state.as_str(), "lost" | "error") => Ok(()),
        _ => Err(format!("{} {} is in error without a wager lost: {:?}", instance.machine, instance.key, instance.error)),
    }
}

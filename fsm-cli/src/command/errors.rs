//! `fsm errors`: instances in error, grouped by verb and by what their errors have in common.

use std::collections::HashMap;

use fsm_core::time::Timestamp;
use fsm_runtime::store::overview::Failing;
use serde_json::json;

use super::{Session, some};
use crate::problem::Problem;
use crate::table::{BAD, Cell, Table};

/// As many are grouped of each machine.
const MOST: usize = 10_000;
/// As many are read at a time.
const PAGE: u32 = 1000;
/// A fingerprint is no longer than this, in characters.
const LONGEST: usize = 200;

struct Group {
    machine: String,
    verb: Option<String>,
    fingerprint: String,
    count: usize,
    first: Failing,
    last_at: Timestamp,
}

pub(super) async fn run(session: &mut Session<'_, '_>, machine: Option<String>) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let mut groups: Vec<Group> = Vec::new();
    let mut unread = Vec::new();
    for known in some(&admin, machine.as_deref())? {
        let machine = known.machine.name.as_str();
        let mut places: HashMap<(Option<String>, String), usize> = HashMap::new();
        let (mut before, mut read) = (None, 0);
        loop {
            let page = admin.failing(machine, before, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            before = page.last().map(|last| last.id);
            read += page.len();
            page.into_iter().for_each(|failing| add(&mut groups, &mut places, machine, failing));
            if is_last {
                break;
            }
            if read >= MOST {
                unread.push(machine);
                break;
            }
        }
    }
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.machine, &a.fingerprint).cmp(&(&b.machine, &b.fingerprint))));
    if session.is_json {
        let told: Vec<_> = groups.iter().map(told).collect();
        return session.stage.json(&json!({ "errors": told, "grouped_up_to": MOST, "more_in": unread }));
    }
    let now = admin.now();
    let mut table = Table::new(&["COUNT", "MACHINE", "VERB", "ERROR", "FIRST", "LAST", "EXAMPLE"]);
    for group in &groups {
        table.row([
            Cell::from(group.count.to_string()),
            Cell::from(&group.machine),
            Cell::from(group.verb.as_deref().unwrap_or("-")),
            Cell::styled(&group.fingerprint, BAD),
            Cell::from(session.stage.moment(group.first.since, now)),
            Cell::from(session.stage.moment(group.last_at, now)),
            Cell::from(&group.first.key),
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no instance is in error");
    }
    for machine in unread {
        session.stage.say(&format!("`{machine}` has more than {MOST} instances in error: only the newest {MOST} are grouped"));
    }
    Ok(())
}

fn add(groups: &mut Vec<Group>, places: &mut HashMap<(Option<String>, String), usize>, machine: &str, failing: Failing) {
    let fingerprint = fingerprint(&failing.error);
    let place = *places.entry((failing.verb.clone(), fingerprint.clone())).or_insert_with(|| {
        let (verb, first, last_at) = (failing.verb.clone(), failing.clone(), failing.since);
        groups.push(Group { machine: machine.to_owned(), verb, fingerprint, count: 0, first, last_at });
        groups.len() - 1
    });
    let group = &mut groups[place];
    group.count += 1;
    group.last_at = group.last_at.max(failing.since);
    if failing.since < group.first.since {
        group.first = failing;
    }
}

fn told(group: &Group) -> serde_json::Value {
    json!({
        "machine": group.machine,
        "verb": group.verb,
        "fingerprint": group.fingerprint,
        "count": group.count,
        "first_at": group.first.since.to_string(),
        "last_at": group.last_at.to_string(),
        "example": { "key": group.first.key, "state": group.first.state, "error": group.first.error },
    })
}

/// The first line of an error with `#` for each word that has a digit: numbers, ids, addresses and times differ from case to case.
fn fingerprint(error: &str) -> String {
    let line = error.trim().lines().next().unwrap_or_default();
    let mut print = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let is_word = rest.starts_with(is_of_word);
        let end = rest.find(|c| is_of_word(c) != is_word).unwrap_or(rest.len());
        let (piece, left) = rest.split_at(end);
        print.push_str(if is_word && piece.contains(|c: char| c.is_ascii_digit()) { "#" } else { piece });
        rest = left;
    }
    print.chars().take(LONGEST).collect()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn a_fingerprint_forgets_what_differs_from_case_to_case() {
        let cases = [
            ("the gateway is down, 3 to go", "the gateway is down, # to go"),
            ("no row 0192f0c1-7c1e-7000-8000-0242ac120002", "no row #"),
            ("timeout after 30s\nat line 3", "timeout after #"),
            ("card declined", "card declined"),
            ("connect 10.0.0.1:5432", "connect #.#.#.#:#"),
        ];
        for (error, expected) in cases {
            assert_eq!(fingerprint(error), expected);
        }
    }
}

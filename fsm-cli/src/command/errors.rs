//! `fsm errors`: instances in error and those that are being retried, grouped by verb and by the common part of their errors.

use std::collections::HashMap;

use fsm_core::time::Timestamp;
use fsm_runtime::store::overview::Failing;
use serde_json::json;

use super::{Session, selected};
use crate::args::Errors;
use crate::problem::Problem;
use crate::table::{BAD, Cell, OPEN, Table};

/// The maximum number of instances that are grouped, for all machines together.
pub(super) const MOST: usize = 2000;
/// The maximum number of a machine's scheduled attempts that are searched for retries.
const MOST_LOOKED_AT: u32 = 20_000;
/// The number of instances that one read returns.
pub(super) const PAGE: u32 = 500;
/// The maximum length of a fingerprint, in characters.
const LONGEST: usize = 200;

struct Group {
    machine: String,
    what: What,
    count: usize,
    first: Failing,
    last_at: Timestamp,
    /// The earliest time of the next attempts, if the group is being retried.
    next_at: Option<Timestamp>,
}

/// The properties that the instances of a group share.
#[derive(Clone, PartialEq, Eq, Hash)]
struct What {
    verb: Option<String>,
    is_retried: bool,
    fingerprint: String,
}

impl What {
    fn word(&self) -> &'static str {
        if self.is_retried { "retrying" } else { "error" }
    }
}

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: &Errors) -> Result<(), Problem> {
    let admin = session.to_read().await?;
    let most = if wanted.all { usize::MAX } else { MOST };
    let mut groups: Vec<Group> = Vec::new();
    let (mut unfinished, mut read) = (Vec::new(), 0);
    for known in selected(&admin, wanted.machine.as_deref())? {
        let machine = known.machine.name.as_str();
        let mut places: HashMap<What, usize> = HashMap::new();
        let look_at = if wanted.all { u32::MAX } else { MOST_LOOKED_AT };
        let retrying = admin.retrying(machine, u32::try_from(most).unwrap_or(u32::MAX), look_at).await?;
        if retrying.len() >= most {
            unfinished.push(machine);
        }
        for one in retrying {
            add(&mut groups, &mut places, machine, one.failing, Some(one.next_at));
        }
        let mut before = None;
        loop {
            let page = admin.failing(machine, before, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            before = page.last().map(|last| last.id);
            read += page.len();
            page.into_iter().for_each(|failing| add(&mut groups, &mut places, machine, failing, None));
            if is_last {
                break;
            }
            if read >= most {
                unfinished.push(machine);
                unfinished.dedup();
                break;
            }
        }
    }
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.machine, &a.what.fingerprint).cmp(&(&b.machine, &b.what.fingerprint))));
    if session.is_json {
        let shown: Vec<_> = groups.iter().map(as_json).collect();
        return session.stage.json(&json!({ "errors": shown, "grouped_up_to": (!wanted.all).then_some(MOST), "more_in": unfinished }));
    }
    let now = admin.now();
    let mut table = Table::new(&["COUNT", "STATUS", "MACHINE", "VERB", "ERROR", "FIRST", "LAST", "NEXT", "EXAMPLE"]);
    for group in &groups {
        table.row([
            Cell::from(group.count.to_string()),
            Cell::styled(group.what.word(), if group.what.is_retried { OPEN } else { BAD }),
            Cell::from(&group.machine),
            Cell::from(group.what.verb.as_deref().unwrap_or("-")),
            Cell::styled(&group.what.fingerprint, BAD),
            Cell::from(session.stage.moment(group.first.since, now)),
            Cell::from(session.stage.moment(group.last_at, now)),
            Cell::from(group.next_at.map_or_else(|| "-".to_owned(), |at| session.stage.moment(at, now))),
            Cell::from(&group.first.key),
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no instance is in error or being retried");
    }
    for machine in unfinished {
        session.stage.say(&format!(
            "`{machine}` has more instances in error or being retried: at most {MOST} of each are grouped; --all groups every one"
        ));
    }
    Ok(())
}

fn add(groups: &mut Vec<Group>, places: &mut HashMap<What, usize>, machine: &str, failing: Failing, next_at: Option<Timestamp>) {
    let what = What { verb: failing.verb.clone(), is_retried: next_at.is_some(), fingerprint: fingerprint(&failing.error) };
    let place = *places.entry(what.clone()).or_insert_with(|| {
        let (first, last_at) = (failing.clone(), failing.since);
        groups.push(Group { machine: machine.to_owned(), what, count: 0, first, last_at, next_at });
        groups.len() - 1
    });
    let group = &mut groups[place];
    group.count += 1;
    group.last_at = group.last_at.max(failing.since);
    group.next_at = group.next_at.min(next_at);
    if failing.since < group.first.since {
        group.first = failing;
    }
}

fn as_json(group: &Group) -> serde_json::Value {
    json!({
        "machine": group.machine,
        "status": group.what.word(),
        "verb": group.what.verb,
        "fingerprint": group.what.fingerprint,
        "count": group.count,
        "first_at": group.first.since.to_string(),
        "last_at": group.last_at.to_string(),
        "next_at": group.next_at.map(|at| at.to_string()),
        "example": { "key": group.first.key, "state": group.first.state, "error": group.first.error },
    })
}

/// The first line of an error, with `#` for each word that contains a digit, because numbers, ids, addresses and times differ from case to
/// case.
pub(super) fn fingerprint(error: &str) -> String {
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

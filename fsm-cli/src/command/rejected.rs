//! `fsm errors --rejected`: events that were accepted and later rejected, grouped by the common part of their reasons.

use std::collections::HashMap;

use fsm_core::time::Timestamp;
use fsm_store::overview::RejectedEvent;
use serde_json::json;

use fsm_runtime::admin::groups::fingerprint;
use fsm_runtime::admin::whole::WholeDatabase;

use super::errors::{MOST, PAGE};
use super::session::Session;
use crate::args::Errors;
use crate::problem::Problem;
use crate::table::{Cell, OPEN, Table};

struct Group {
    machine: String,
    fingerprint: String,
    count: usize,
    first_at: Timestamp,
    last_at: Timestamp,
    example: RejectedEvent,
}

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: &Errors) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database, wanted).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase, wanted: &Errors) -> Result<(), Problem> {
    let most = if wanted.all { usize::MAX } else { MOST };
    let mut groups: Vec<Group> = Vec::new();
    let (mut unfinished, mut read) = (Vec::new(), 0);
    for known in database.selected(wanted.machine.as_deref())? {
        let machine = known.machine.name.as_str();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut before = None;
        loop {
            let page = database.rejected(machine, before, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            before = page.last().map(|last| last.call);
            read += page.len();
            page.into_iter().for_each(|event| add(&mut groups, &mut places, machine, event));
            if is_last {
                break;
            }
            if read >= most {
                unfinished.push(machine);
                break;
            }
        }
    }
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.machine, &a.fingerprint).cmp(&(&b.machine, &b.fingerprint))));
    if session.is_json {
        let shown: Vec<_> = groups.iter().map(as_json).collect();
        return session.stage.json(&json!({ "rejected": shown, "grouped_up_to": (!wanted.all).then_some(MOST), "more_in": unfinished }));
    }
    let now = database.now();
    let mut table = Table::new(&["COUNT", "MACHINE", "REASON", "FIRST", "LAST", "EXAMPLE"]);
    for group in &groups {
        table.row([
            Cell::from(group.count.to_string()),
            Cell::from(&group.machine),
            Cell::styled(&group.fingerprint, OPEN),
            Cell::from(session.stage.moment(group.first_at, now)),
            Cell::from(session.stage.moment(group.last_at, now)),
            Cell::from(&group.example.key),
        ]);
    }
    session.stage.table(&table)?;
    if table.is_empty() {
        session.stage.say("no event was rejected");
    }
    for machine in unfinished {
        session.stage.say(&format!("`{machine}` has rejected more events: the newest {MOST} of all are grouped; --all groups every one"));
    }
    Ok(())
}

fn add(groups: &mut Vec<Group>, places: &mut HashMap<String, usize>, machine: &str, event: RejectedEvent) {
    let fingerprint = fingerprint(&event.reason.replacen(&format!("`{}`", event.key.escape_debug()), "#", 1));
    let place = *places.entry(fingerprint.clone()).or_insert_with(|| {
        let (first_at, last_at) = (event.at, event.at);
        groups.push(Group { machine: machine.to_owned(), fingerprint, count: 0, first_at, last_at, example: event.clone() });
        groups.len() - 1
    });
    let group = &mut groups[place];
    group.count += 1;
    group.first_at = group.first_at.min(event.at);
    if event.at >= group.last_at {
        group.last_at = event.at;
        group.example = event;
    }
}

fn as_json(group: &Group) -> serde_json::Value {
    json!({
        "machine": group.machine,
        "fingerprint": group.fingerprint,
        "count": group.count,
        "first_at": group.first_at.to_string(),
        "last_at": group.last_at.to_string(),
        "example": {
            "key": group.example.key,
            "call": group.example.call.to_string(),
            "at": group.example.at.to_string(),
            "reason": group.example.reason,
        },
    })
}

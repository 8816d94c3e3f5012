//! `fsm errors`: instances in error and those that are being retried, grouped by verb and by the common part of their errors.

use fsm_runtime::admin::groups::{ErrorGroup, ErrorGroups};
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use fsm_store::outbox::FullInbox;
use serde_json::json;

use super::session::{Session, located};
use crate::args::Errors;
use crate::problem::Problem;
use crate::table::{BAD, Cell, OPEN, Table};

/// The maximum number of instances that are grouped, for all machines together.
pub(super) const MOST: usize = 2000;
/// The maximum number of a machine's scheduled attempts that are searched for retries.
const MOST_LOOKED_AT: u32 = 20_000;
/// The number of instances that one read returns.
pub(super) const PAGE: u32 = 500;
/// The maximum number of full inboxes that are listed for each machine.
const MOST_FULL: u32 = 20;

fn word(group: &ErrorGroup) -> &'static str {
    if group.is_retried { "retrying" } else { "error" }
}

pub(super) async fn run(session: &mut Session<'_, '_>, wanted: &Errors) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database, wanted).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase, wanted: &Errors) -> Result<(), Problem> {
    let (most, look_at) = if wanted.all { (usize::MAX, u32::MAX) } else { (MOST, MOST_LOOKED_AT) };
    let ErrorGroups { groups, more_in } = database.error_groups(wanted.machine.as_deref(), most, look_at).await?;
    let mut full_inboxes = Vec::new();
    for known in database.selected(wanted.machine.as_deref())? {
        let machine = known.machine.name.as_str();
        full_inboxes.extend(database.full_inboxes(machine, MOST_FULL).await?.into_iter().map(|full| (machine, full)));
    }
    if session.is_json {
        let shown: Vec<_> = groups.iter().map(as_json).collect();
        let full: Vec<_> = full_inboxes.iter().map(|(machine, one)| told(machine, one)).collect();
        let all = json!({ "errors": shown, "full_inboxes": full, "grouped_up_to": (!wanted.all).then_some(MOST), "more_in": more_in });
        return session.stage.json(&all);
    }
    let now = database.now();
    let mut table = Table::new(&["COUNT", "STATUS", "MACHINE", "VERB", "ERROR", "FIRST", "LAST", "NEXT", "EXAMPLE"]);
    for group in &groups {
        table.row([
            Cell::from(group.count.to_string()),
            Cell::styled(word(group), if group.is_retried { OPEN } else { BAD }),
            Cell::from(&group.machine),
            Cell::from(group.verb.as_deref().unwrap_or("-")),
            Cell::styled(&group.fingerprint, BAD),
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
    for (machine, Located { row: one, .. }) in full_inboxes {
        let key = one.key.escape_debug();
        session.stage.say(&format!(
            "the inbox of `{machine}` `{key}` is full with {} events: {} wait in the outbox since {}",
            one.inbox_len,
            one.events,
            session.stage.moment(one.since, now)
        ));
    }
    for machine in more_in {
        session.stage.say(&format!(
            "`{machine}` has more instances in error or being retried: at most {MOST} of each are grouped; --all groups every one"
        ));
    }
    Ok(())
}

/// A receiver whose inbox has no room.
pub(super) fn full(full: &FullInbox) -> serde_json::Value {
    json!({
        "key": full.key,
        "inbox_len": full.inbox_len,
        "events": full.events,
        "since": full.since.to_string(),
        "next_at": full.next_at.to_string(),
    })
}

fn told(machine: &str, Located { partition, row }: &Located<FullInbox>) -> serde_json::Value {
    let mut told = located(*partition, full(row));
    told["machine"] = json!(machine);
    told
}

fn as_json(group: &ErrorGroup) -> serde_json::Value {
    json!({
        "machine": group.machine,
        "status": word(group),
        "verb": group.verb,
        "fingerprint": group.fingerprint,
        "count": group.count,
        "first_at": group.first.since.to_string(),
        "last_at": group.last_at.to_string(),
        "next_at": group.next_at.map(|at| at.to_string()),
        "example": { "key": group.first.key, "state": group.first.state, "error": group.first.error },
    })
}

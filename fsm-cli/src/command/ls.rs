//! `fsm ls`: lists instances page by page.

use std::collections::BTreeSet;

use fsm_core::check::{listed, nearest};
use fsm_core::ids::InstanceId;
use fsm_core::instance::Status;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use fsm_runtime::admin::Definition;
use fsm_runtime::admin::whole::{Located, WholeDatabase};
use fsm_runtime::handle::instance_view::InstanceView;
use fsm_store::pages::{After, PageFilter, Unreadable};
use serde_json::{Value, json};
use uuid::Uuid;

use super::liveness::{Lapse, Liveness};
use super::session::{Session, located};
use crate::args::{Ls, Wanted};
use crate::problem::Problem;
use crate::stage::apart;
use crate::table::{BAD, Cell, FAINT, GOOD, OPEN, Table};

/// The maximum number of instances of one status that a page examines for a condition without an index.
const MOST_LOOKED_AT: u32 = 20_000;

pub(super) async fn run(session: &mut Session<'_, '_>, ls: Ls) -> Result<(), Problem> {
    let database = session.to_read_all().await?;
    show(session, &database, ls).await?;
    session.check_partitions(&database)
}

async fn show(session: &mut Session<'_, '_>, database: &WholeDatabase, ls: Ls) -> Result<(), Problem> {
    check_state(database, ls.machine.as_deref(), &ls.wanted)?;
    let Page { instances, unreadable, next, was_cut } = page(database, &ls).await?;
    let now = database.now();
    let liveness = Liveness::of_all(database).await?;
    if session.is_json {
        let instances: Vec<_> = instances.iter().map(|one| located(one.partition, as_json(&one.row, &liveness))).collect();
        let told = |(machine, Located { partition, row }): &(String, Located<Unreadable>)| {
            located(*partition, json!({ "machine": machine, "key": row.key, "why": row.why }))
        };
        let unreadable: Vec<_> = unreadable.iter().map(told).collect();
        return session.stage.json(&json!({ "instances": instances, "unreadable": unreadable, "next": next, "was_cut": was_cut }));
    }
    let mut table = Table::new(&["MACHINE", "KEY", "STATE", "STATUS", "CHANGED", "ABOUT"]);
    for Located { row: seen, .. } in &instances {
        let row = &seen.row;
        table.row([
            Cell::from(&row.machine),
            Cell::from(&row.key),
            Cell::from(row.state.as_deref().unwrap_or("-")),
            status(row.status, row.paused),
            Cell::from(session.stage.moment(row.updated_at, now)),
            Cell::from(about(seen, &liveness, session.stage.width.map(|_| now))),
        ]);
    }
    for (machine, Located { row: Unreadable { key, why }, .. }) in &unreadable {
        table.row([
            Cell::from(machine),
            Cell::from(key),
            Cell::from("-"),
            Cell::styled("unreadable", BAD),
            Cell::from("-"),
            Cell::from(why),
        ]);
    }
    session.stage.table(&table)?;
    match next {
        Some(next) if was_cut => {
            session.stage.say(&format!("enough was looked at for one page; go on looking: --after '{next}', or --all"))
        }
        Some(next) => session.stage.say(&format!("there are more: --after '{next}'")),
        None if table.is_empty() => session.stage.say("no instance is like that"),
        None => {}
    }
    Ok(())
}

/// A page of the instances of all requested machines.
#[derive(Default)]
struct Page {
    instances: Vec<Located<InstanceView>>,
    /// Those of which a value does not decode, with their machines.
    unreadable: Vec<(String, Located<Unreadable>)>,
    /// The cursor of the next page.
    next: Option<String>,
    /// True if the page ended at the limit on instances examined.
    was_cut: bool,
}

/// Reads a page of the instances of all requested machines, one machine after the other.
async fn page(database: &WholeDatabase, ls: &Ls) -> Result<Page, Problem> {
    // Children are listed in the order of their creation.
    let is_by_key = ls.parent.is_none() && ls.wanted.is_by_key();
    let after = ls.after.as_deref().map(|text| cursor(text, is_by_key)).transpose()?;
    let parent = match &ls.parent {
        Some((machine, key)) => Some(database.instance_id(machine, key).await?),
        None => None,
    };
    let mut page = Page::default();
    for known in searched(database, ls)? {
        let machine = known.machine.name.as_str();
        let after = match &after {
            Some((there, _)) if machine < there.as_str() => continue,
            Some((there, after)) if machine == there => after.clone(),
            _ => None,
        };
        let room = ls.limit.saturating_sub((page.instances.len() + page.unreadable.len()) as u32);
        let screen = PageFilter {
            newest_first: !ls.oldest,
            parent,
            look_at_most: (!ls.all).then_some(MOST_LOOKED_AT),
            ..filter(&ls.wanted, after, room.max(1), database.now())
        };
        let listed = database.page(machine, &screen).await?;
        if room == 0 && (listed.next.is_some() || !listed.instances.is_empty() || !listed.unreadable.is_empty()) {
            // This machine from its beginning: all of those before are on this page.
            let next = Some(format!("{machine}:"));
            return Ok(Page { next, ..page });
        }
        page.instances.extend(listed.instances);
        page.unreadable.extend(listed.unreadable.into_iter().map(|one| (machine.to_owned(), one)));
        if let Some(next) = listed.next {
            let next = match next {
                After::Instance(id) => format!("{machine}:{id}"),
                After::Key(key) => format!("{machine}:{key}"),
            };
            return Ok(Page { next: Some(next), was_cut: listed.was_cut, ..page });
        }
    }
    Ok(page)
}

/// The requested machines. If none is named, those that have all search fields of the filter.
fn searched<'m>(database: &'m WholeDatabase, ls: &Ls) -> Result<Vec<&'m Definition>, Problem> {
    let mut machines = database.selected(ls.machine.as_deref())?;
    if ls.machine.is_some() || ls.wanted.search.is_empty() {
        return Ok(machines);
    }
    let lacks = |known: &Definition| ls.wanted.search.iter().find(|field| !known.machine.search.contains(&field.name));
    let lacked = machines.iter().find_map(|known| lacks(known));
    machines.retain(|known| lacks(known).is_none());
    match lacked.filter(|_| machines.is_empty()) {
        Some(field) => {
            let known: BTreeSet<_> = database.machines().iter().flat_map(|known| &known.machine.search).map(String::as_str).collect();
            let name = &field.name;
            Err(Problem::NotFound(format!(
                "no machine has the search field `{name}` and all others; the search fields are {}",
                listed(known)
            )))
        }
        None => Ok(machines),
    }
}

/// Returns a `NotFound` error if no definition of the machine, or of any machine, ever had the requested state.
pub(super) fn check_state(database: &WholeDatabase, machine: Option<&str>, wanted: &Wanted) -> Result<(), Problem> {
    let Some(state) = wanted.state.as_deref() else { return Ok(()) };
    let states: Vec<&str> = database.selected(machine)?.iter().flat_map(|known| &known.states).map(String::as_str).collect();
    if states.contains(&state) {
        return Ok(());
    }
    let whose = machine.map_or_else(|| "no machine has".to_owned(), |machine| format!("`{machine}` has not"));
    let meant = nearest(state, states.iter().copied()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let known = if states.is_empty() { "none".to_owned() } else { listed(states.iter().copied()) };
    Err(Problem::NotFound(format!("{whose} the state `{state}`; the states are {known}{meant}")))
}

/// The filter for the store.
pub(super) fn filter(wanted: &Wanted, after: Option<After>, limit: u32, now: Timestamp) -> PageFilter {
    PageFilter {
        key_prefix: wanted.key_prefix.clone(),
        search: wanted.search.clone(),
        status: wanted.status,
        state: wanted.state.clone(),
        paused: wanted.paused.then_some(true),
        error: wanted.error.clone(),
        retrying: wanted.retrying,
        unchanged_since: wanted.older.map(|older| now - older),
        after,
        limit,
        ..PageFilter::default()
    }
}

/// The machine, and the instance after which the page begins: without one, the page begins with the machine's first.
fn cursor(text: &str, is_by_key: bool) -> Result<(String, Option<After>), Problem> {
    // No machine has a colon in its name; a key may.
    let parsed = text.split_once(':').and_then(|(machine, after)| {
        let after = match after {
            "" => None,
            key if is_by_key => Some(After::Key(key.to_owned())),
            id => Some(After::Instance(InstanceId(id.parse::<Uuid>().ok()?))),
        };
        Some((machine.to_owned(), after))
    });
    parsed.ok_or_else(|| Problem::Usage(format!("`{text}` is no cursor: give what the page before said at its end")))
}

/// The status in its colour, with the note that the instance is paused.
pub(super) fn status(status: Status, paused: bool) -> Cell {
    let word = if paused && !status.is_ended() { format!("{status}, paused") } else { status.to_string() };
    let style = match status {
        Status::Running if paused => OPEN,
        Status::Running => anstyle::Style::new(),
        Status::Completed => GOOD,
        Status::Error => BAD,
        Status::Cancelled => FAINT,
    };
    Cell::styled(word, style)
}

/// The activity of an instance in a few words. Times are relative to `now` if it is given.
pub(super) fn about(seen: &InstanceView, liveness: &Liveness, now: Option<Timestamp>) -> String {
    use fsm_runtime::handle::activity::Activity;
    let moment = |at: Timestamp| now.map_or_else(|| at.to_string(), |now| apart(at, now));
    match seen.activity() {
        Activity::Rests => "rests".into(),
        Activity::Runs { verb, attempt } => match seen.call.as_ref().and_then(|call| liveness.lapse(call)) {
            Some(Lapse { at: Some(at) }) => format!("`{verb}`, attempt {attempt}, has no worker: its lease ended {}", moment(at)),
            Some(Lapse { at: None }) => format!("`{verb}`, attempt {attempt}, has no worker"),
            None => format!("runs `{verb}`, attempt {attempt}"),
        },
        Activity::Waits { verb, attempt, until, limit } => {
            let error = seen.call.as_ref().and_then(|call| call.last_error.as_ref()).map_or_else(String::new, |error| format!(": {error}"));
            let limit = limit.map_or_else(String::new, |limit| format!(", waits for the limit {limit}"));
            format!("`{verb}`, attempt {attempt}, due {}{limit}{error}", moment(until))
        }
        Activity::Stuck { why } => why,
        Activity::Ended(_) => String::new(),
    }
}

/// The search fields as a map.
fn fields(fields: &[SearchField]) -> Value {
    fields.iter().map(|field| (field.name.clone(), Value::from(field.value.as_str()))).collect::<serde_json::Map<_, _>>().into()
}

/// An instance as JSON.
pub(super) fn as_json(seen: &InstanceView, liveness: &Liveness) -> Value {
    let row = &seen.row;
    json!({
        "machine": row.machine,
        "key": row.key,
        "id": row.id,
        "state": row.state,
        "status": row.status,
        "paused": row.paused,
        "version": row.version,
        "error": row.error,
        "inbox_len": row.inbox_len(),
        "entered_at": row.entered_at.map(|at| at.to_string()),
        "created_at": row.created_at.to_string(),
        "updated_at": row.updated_at.to_string(),
        "record": row.record.as_deref().map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap_or(Value::Null)),
        "fields": fields(&seen.fields),
        "call": seen.call.as_ref().map(|call| json!({
            "id": call.id,
            "verb": call.verb,
            "event": call.event,
            "state": call.state,
            "attempt": call.attempt,
            "max_attempts": call.max_attempts,
            "retries_left": call.retries_left,
            "snoozes": call.snoozes,
            "next_at": call.next_at.to_string(),
            "last_error": call.last_error,
            "worker": call.worker,
            "lease_until": liveness.lease_until(call).map(|at| at.to_string()),
            "has_lapsed": liveness.lapse(call).is_some(),
            "limit": call.limit,
            "limit_value": call.limit_value,
            "priority": call.priority,
            "progress": call.progress,
        })),
    })
}

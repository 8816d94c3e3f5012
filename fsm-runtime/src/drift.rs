//! Drift: names that live rows need and the code lacks. They prevent the start, unless the user maps them to other names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fsm_core::changes::Changes;
use fsm_core::commit::rows::Target;
use fsm_core::decide::migrate::{Renames, migrate};
use fsm_core::decide::{DecisionContext, InstanceSnapshot};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::instance::{Instance, Status};
use fsm_core::machine::Machine;
use fsm_core::retry::Retry;
use fsm_store::claim::may_be_a_rows;
use fsm_store::conn::Conn;
use fsm_store::drift::{self, Kind, Names, Need, Needs, Page};
use fsm_store::error::StoreError;
use fsm_store::lock;
use fsm_store::machines;
use fsm_store::open::Store;
use fsm_store::outbox;
use fsm_store::tx::Tx;
use fsm_store::write::write;
use futures_util::future::try_join_all;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::reconciler_state::Mappings;

/// The maximum number of instances that one transaction renames.
const AT_A_TIME: u32 = 100;

/// A mapping from names that a machine's code no longer has to the names that replace them in the database.
///
/// ```
/// # use fsm_runtime::drift::Migrate;
/// let mapped = Migrate::machine("payment").state("authorised", "paid").verb("authorised", "paid").event("Authorised", "Paid");
/// ```
#[derive(Debug, Clone)]
pub struct Migrate {
    machine: String,
    renames: Renames,
}

impl Migrate {
    /// A mapping for the machine with this name in the database.
    pub fn machine(name: impl Into<String>) -> Migrate {
        Migrate { machine: name.into(), renames: Renames::default() }
    }

    /// Maps the state `old`, which the code no longer has, to `new`. Instances in `old` are in `new` afterwards, and their timers continue.
    /// An idle instance becomes completed if `new` is an end.
    pub fn state(mut self, old: impl Into<String>, new: impl Into<String>) -> Migrate {
        self.renames.states.insert(old.into(), new.into());
        self
    }

    /// Maps the verb `old`, which the code no longer has, to `new`. Open and exhausted calls of `old` run `new` afterwards.
    pub fn verb(mut self, old: impl Into<String>, new: impl Into<String>) -> Migrate {
        self.renames.verbs.insert(old.into(), new.into());
        self
    }

    /// Maps the event type `old`, which the code no longer has, to `new`, for events in inboxes and of delayed sends. Their payloads are
    /// not changed.
    pub fn event(mut self, old: impl Into<String>, new: impl Into<String>) -> Migrate {
        self.renames.events.insert(old.into(), new.into());
        self
    }
}

/// Compares the names that live rows need with the code, in all of these databases or partitions, and returns the mappings of each machine. The
/// error lists all names that the code lacks and that are not mapped. Changes nothing, so that a start that fails leaves every partition as it is.
pub(crate) async fn check(stores: &[&Store], catalog: &Catalog, mapped: &[Migrate]) -> Result<Mappings, Error> {
    let mappings = checked(catalog, mapped)?;
    let mut lacking = Vec::new();
    let none = Renames::default();
    for known in catalog.iter() {
        let renames = mappings.get(known.machine.name.as_str()).unwrap_or(&none);
        let each = try_join_all(stores.iter().map(|store| needs(store, &known.machine))).await?;
        lacking.extend(merged(each).iter().flat_map(|need| lack(&known.machine, renames, need)));
    }
    if lacking.is_empty() {
        return Ok(mappings);
    }
    lacking.sort();
    let advice =
        "bring it back, or say what takes its place: `.migrate(Migrate::machine(…).state(old, new).verb(old, new).event(old, new))`";
    let text = format!("the code lacks what rows in the database need; {advice}:\n  {}", lacking.join("\n  "));
    Err(Error::other(ErrorKind::Drift, text))
}

/// The needs of the live rows of a machine in one database.
async fn needs(store: &Store, machine: &Machine) -> Result<Vec<Need>, Error> {
    let name = &machine.name;
    let mut reader = store.reader().await?;
    let conn = &mut reader.conn();
    // Only a process that was started with a definition moves instances, so no row is in a state that no stored definition has.
    let has_all = |other: &Machine| other.states().all(|state| machine.states().any(|own| own == state));
    let has_states = !definitions(conn, name).await?.is_some_and(|others| others.iter().all(has_all));
    let of_instances = drift::needs_of_instances(conn, name, has_states).await?;
    let Needs { needs, unread } = of_instances.and(drift::needs(conn, name).await?);
    for why in unread {
        tracing::warn!(machine = name, why, "what a row needs of the code cannot be checked; the others are");
    }
    Ok(needs)
}

/// The needs of all partitions, each name once.
fn merged(each: Vec<Vec<Need>>) -> Vec<Need> {
    let mut all: Vec<Need> = Vec::new();
    for need in each.into_iter().flatten() {
        match all.iter_mut().find(|one| (one.kind, &one.name, &one.retry) == (need.kind, &need.name, &need.retry)) {
            Some(one) => (one.count, one.since) = (one.count + need.count, one.since.min(need.since)),
            None => all.push(need),
        }
    }
    all
}

/// Renames the rows of a database by these mappings.
pub(crate) async fn apply_all(store: &Store, clock: &Clock, catalog: &Catalog, mappings: &Mappings) -> Result<(), Error> {
    for (name, renames) in mappings {
        apply(store, clock, &catalog.expect(name)?.machine, renames).await?;
    }
    Ok(())
}

/// Renames all rows that have an old name. Returns the number of instances.
pub(crate) async fn apply(store: &Store, clock: &Clock, machine: &Machine, renames: &Renames) -> Result<usize, Error> {
    let needs = drift::needs(&mut store.reader().await?.conn(), &machine.name).await?.needs;
    let names = names(renames, &needs);
    let (mut after, mut renamed) = (Some(InstanceId(Uuid::nil())), 0);
    while let Some(from) = after {
        // Usually there is nothing to rename, so the search needs no write connection.
        let Page { found, next } = drift::bearers(&mut store.reader().await?.conn(), &machine.name, &names, from, AT_A_TIME).await?;
        let rename = |some| rename_some(store, clock, machine, renames, &found[some]);
        let count = each_if_not_all(&found, rename, |(_, key), error| {
            tracing::warn!(machine = machine.name, key, %error, "the names of an instance cannot be replaced; those of the others are");
        });
        renamed += count.await?;
        after = next;
    }
    if renamed > 0 {
        tracing::info!(machine = machine.name, instances = renamed, "names that the code no longer has were replaced");
    }
    if needs.iter().any(|need| matches!(need.kind, Kind::InOutbox) && renames.events.contains_key(&need.name)) {
        let mut tx = store.begin().await?;
        outbox::rename(&mut tx.conn(), &machine.name, &renames.events).await?;
        tx.commit().await?;
    }
    Ok(renamed)
}

/// Calls `act` for all of `all` at once. If it fails and one row may be at fault, calls it for each by itself. The argument of `act` is the range
/// of indexes. Returns the sum of its results; `on_error` is called for each row that fails.
pub(crate) async fn each_if_not_all<T, F>(
    all: &[T],
    act: impl Fn(Range<usize>) -> F,
    on_error: impl Fn(&T, StoreError),
) -> Result<usize, StoreError>
where
    F: Future<Output = Result<usize, StoreError>>,
{
    let is_one_of_them = |error: &StoreError| may_be_a_rows(error) || error.is_locked();
    if all.is_empty() {
        return Ok(0);
    }
    match act(0..all.len()).await {
        Err(error) if is_one_of_them(&error) => {}
        done => return done,
    }
    let mut done = 0;
    for (place, one) in all.iter().enumerate() {
        match act(place..place + 1).await {
            Ok(count) => done += count,
            Err(error) if is_one_of_them(&error) => on_error(one, error),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// All stored definitions of the machine. `None` if there are none, or if one of them cannot be read.
pub(crate) async fn definitions(conn: &mut Conn<'_>, machine: &str) -> Result<Option<Vec<Machine>>, StoreError> {
    let kept = match machines::definitions(conn, machine).await {
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        kept => kept?,
    };
    let read: Option<Vec<Machine>> = kept.iter().map(|kept| serde_json::from_str(&kept.definition).ok()).collect();
    Ok(read.filter(|read| !read.is_empty()))
}

/// Returns one line for each name that live rows of the machine need and this definition of it lacks.
pub(crate) async fn lacking(store: &Store, machine: &Machine) -> Result<Vec<String>, Error> {
    let mut reader = store.reader().await?;
    let conn = &mut reader.conn();
    let of_instances = drift::needs_of_instances(conn, &machine.name, true).await?;
    let Needs { needs, unread } = of_instances.and(drift::needs(conn, &machine.name).await?);
    Ok(unread.into_iter().chain(needs.iter().flat_map(|need| lack(machine, &Renames::default(), need))).collect())
}

/// Merges the mappings by machine. An error if the code still has an old name or lacks a new one.
fn checked(catalog: &Catalog, mapped: &[Migrate]) -> Result<Mappings, Error> {
    let mut all = Mappings::new();
    for Migrate { machine: name, renames } in mapped {
        let machine = &catalog.expect(name)?.machine;
        let check = |kind, pairs: &BTreeMap<String, String>, known: Vec<&str>| {
            pairs.iter().try_for_each(|(old, new)| {
                let list = || known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                if known.contains(&old.as_str()) {
                    return Err(Error::input(format!("\"{name}\" still has the {kind} `{old}`: only one that it lacks can be mapped")));
                }
                if !known.contains(&new.as_str()) {
                    return Err(Error::input(format!("\"{name}\" has no {kind} `{new}` to map `{old}` to; it has {}", list())));
                }
                Ok(())
            })
        };
        check("state", &renames.states, machine.states().collect())?;
        check("verb", &renames.verbs, machine.verbs.iter().map(|verb| verb.name.as_str()).collect())?;
        let events: BTreeSet<_> = machine.edges.iter().filter(|edge| edge.after.is_none()).map(|edge| edge.event.as_str()).collect();
        check("event", &renames.events, events.into_iter().collect())?;
        let merged = all.entry(name.clone()).or_default();
        merged.states.extend(renames.states.clone());
        merged.verbs.extend(renames.verbs.clone());
        merged.events.extend(renames.events.clone());
    }
    Ok(all)
}

/// Returns one line for each name of a need that the code lacks and that is not mapped.
fn lack(machine: &Machine, renames: &Renames, need: &Need) -> Vec<String> {
    let Need { kind, name, count, since, .. } = need;
    let one = *count == 1;
    let has_verb = |name: &str| machine.verb(name).is_some() || renames.verbs.contains_key(name);
    let has_event = |name: &str| machine.edges.iter().any(|edge| edge.event == name) || renames.events.contains_key(name);
    let has_state = machine.states().any(|state| state == name) || renames.states.contains_key(name);
    let calls = |of: &str| format!("{of} call{} of", if one { "" } else { "s" });
    let (is_there, what, noun, when) = match kind {
        Kind::State => (has_state, if one { "instance in" } else { "instances in" }.to_owned(), "state", "since"),
        Kind::OpenCall => (has_verb(name), calls("open"), "verb", "since"),
        Kind::ExhaustedCall => (has_verb(name), calls("exhausted"), "verb", "since"),
        Kind::Waiting => (has_event(name), if one { "waits:" } else { "wait:" }.to_owned(), "event", "since"),
        Kind::InOutbox => (has_event(name), if one { "waits for room:" } else { "wait for room:" }.to_owned(), "event", "since"),
        Kind::Delayed => (has_event(name), if one { "is delayed:" } else { "are delayed:" }.to_owned(), "event", "due from"),
    };
    let line = |what: &str, noun: &str, name: &str| format!("\"{}\": {count} {what} the {noun} `{name}`, {when} {since}", machine.name);
    let mut lacking: Vec<_> = (!is_there).then(|| line(&what, noun, name)).into_iter().collect();
    let catch = policy(need).and_then(|policy| policy.catch).filter(|catch| !has_verb(catch));
    lacking.extend(catch.map(|catch| line(&format!("{what} `{name}`, caught by"), "verb", &catch)));
    lacking
}

fn policy(need: &Need) -> Option<Retry> {
    serde_json::from_str(need.retry.as_ref()?).ok()
}

fn names(renames: &Renames, needs: &[Need]) -> Names {
    let is_renamed = |need: &&Need| policy(need).and_then(|policy| policy.catch).is_some_and(|catch| renames.verbs.contains_key(&catch));
    Names {
        states: renames.states.keys().cloned().collect(),
        verbs: renames.verbs.keys().cloned().collect(),
        events: renames.events.keys().cloned().collect(),
        retries: needs.iter().filter(is_renamed).filter_map(|need| need.retry.clone()).collect(),
    }
}

/// Renames these instances in one transaction. Returns the number of renamed ones.
async fn rename_some(
    store: &Store,
    clock: &Clock,
    machine: &Machine,
    renames: &Renames,
    found: &[(InstanceId, String)],
) -> Result<usize, StoreError> {
    let mut tx = store.begin().await?;
    tx.conn().wait_for_locks().await?;
    let renamed = rename(&mut tx, clock, machine, renames, found).await?;
    tx.commit().await?;
    Ok(renamed)
}

async fn rename(
    tx: &mut Tx,
    clock: &Clock,
    machine: &Machine,
    renames: &Renames,
    found: &[(InstanceId, String)],
) -> Result<usize, StoreError> {
    let mut conn = tx.conn();
    let targets: Vec<_> = found.iter().map(|(_, key)| Target { machine: &machine.name, key }).collect();
    let locked: Vec<_> = lock::instances(&mut conn, &targets).await?.into_iter().flatten().collect();
    let may_run = |instance: &Instance| instance.is_open || instance.status == Status::Error;
    let newest = locked.iter().filter(|locked| may_run(&locked.instance)).filter_map(|locked| locked.newest.as_deref().cloned());
    let mut attempts: Vec<_> = newest.collect();
    let instances: Vec<_> = locked.into_iter().map(|locked| locked.instance).collect();
    let ids: Vec<_> = instances.iter().map(|instance| instance.id).collect();
    // An operator can retry a caught call.
    let caught: Vec<CallId> = attempts.iter().filter(|newest| newest.is_catch()).filter_map(|newest| newest.previous).collect();
    attempts.extend(lock::last_attempts(&mut conn, &caught).await?);
    let mut inboxes = lock::inbox(&mut conn, &instances.iter().collect::<Vec<_>>(), i64::MAX).await?;
    let timers = drift::timers(&mut conn, &ids).await?;
    drift::rename_requests(&mut conn, &ids, &renames.events).await?;
    let mut migrated = Vec::new();
    for instance in instances {
        let id = instance.id;
        let of_instance: Vec<_> = attempts.iter().filter(|attempt| attempt.instance == id).cloned().collect();
        let timers: Vec<_> = timers.iter().filter(|timer| timer.instance == id).cloned().collect();
        let inbox: Vec<_> = inboxes.extract_if(.., |(of, _)| *of == id).map(|(_, waiting)| waiting).collect();
        let snapshot = InstanceSnapshot { inbox: inbox.into(), ..InstanceSnapshot::of(instance) };
        let moment = DecisionContext { now: clock.now(), grant: None, fresh: CallId(Uuid::now_v7()) };
        migrated.extend(migrate(machine, snapshot, &of_instance, &timers, renames, moment));
    }
    for one in &migrated {
        let waiting: Vec<_> = one.waiting.iter().map(|waiting| (one.changes.instance.id, waiting.clone())).collect();
        drift::rename(&mut conn, &one.attempts, &waiting, &one.timers).await?;
    }
    let changes: Vec<&Changes> = migrated.iter().map(|one| &one.changes).collect();
    write(&mut conn, &changes).await?;
    Ok(changes.len())
}

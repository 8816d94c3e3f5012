//! The end of a scenario: the parts that are compared between a run with a crash and the run without one.

use std::collections::BTreeMap;
use std::fmt;

use fsm_core::instance::Status;
use fsm_store::conn::Conn;
use fsm_store::overview;
use fsm_store::pages::{self, PageFilter};
use serde_json::Value;

use crate::data_protection::Owner;
use crate::engine::Engine;
use crate::error::Error;
use crate::handle::instance_view::{InstanceView, with_calls};

/// Removes from a record the parts that are not compared.
pub(super) type Ignoring<'b> = Box<dyn Fn(&mut Value) + 'b>;

/// The number of instances that are read at a time.
const PAGE: u32 = 1000;

/// The end of a scenario. Times, ids and the number of attempts are left out, because a crash changes them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FinalState {
    pub(super) instances: BTreeMap<(String, String), InstanceEnd>,
    pub(super) effects: BTreeMap<String, u32>,
    /// The invariants that do not hold.
    pub(super) broken: Vec<String>,
    /// The result of the scenario.
    pub(super) answer: String,
}

/// An instance at the end of a scenario.
#[derive(Debug, PartialEq)]
pub(super) struct InstanceEnd {
    status: Status,
    state: Option<String>,
    paused: bool,
    transitions: i64,
    record: Option<String>,
    call: Option<String>,
    inbox: Vec<String>,
    timers: Vec<String>,
    /// The error text, for messages only. It is not compared.
    error: NotCompared,
}

/// A text that equals any other text.
#[derive(Debug)]
struct NotCompared(Option<String>);

impl PartialEq for NotCompared {
    fn eq(&self, _: &NotCompared) -> bool {
        true
    }
}

impl FinalState {
    /// Reads all instances of the engine's machines.
    pub(super) async fn read(engine: &Engine, ignoring: &[Ignoring<'_>]) -> Result<BTreeMap<(String, String), InstanceEnd>, Error> {
        let mut reader = engine.store.reader().await?;
        let conn = &mut reader.conn();
        let mut instances = BTreeMap::new();
        for machine in engine.catalog.names.iter() {
            let mut after = None;
            loop {
                let found = pages::page(conn, machine, &PageFilter { after, limit: PAGE, ..PageFilter::default() }).await?;
                after = found.next;
                for seen in with_calls(conn, found.rows, engine.catalog.search_fields(machine), &engine.data_protection).await?.instances {
                    let name = (machine.clone(), seen.row.key.clone());
                    instances.insert(name, InstanceEnd::of(conn, seen, engine, ignoring).await?);
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(instances)
    }

    /// Returns one sentence for each difference. `self` is the end of the run with a crash.
    pub(super) fn differs_from(&self, plain: &FinalState) -> Vec<String> {
        let mut differences = self.broken.clone();
        let names = self.instances.keys().chain(plain.instances.keys().filter(|name| !self.instances.contains_key(*name)));
        for name in names {
            let (here, there) = (self.instances.get(name), plain.instances.get(name));
            if here != there {
                let described = |stand: Option<&InstanceEnd>| stand.map_or("not there".to_owned(), InstanceEnd::to_string);
                let (machine, key) = name;
                let key = key.escape_debug();
                differences.push(format!("`{machine}` `{key}` is {}; without a crash it is {}", described(here), described(there)));
            }
        }
        let effects = self.effects.keys().chain(plain.effects.keys().filter(|what| !self.effects.contains_key(*what)));
        for what in effects {
            let times = |end: &FinalState| match end.effects.get(what) {
                None => "never".to_owned(),
                Some(1) => "once".to_owned(),
                Some(times) => format!("{times} times"),
            };
            if times(self) != times(plain) {
                differences.push(format!("the effect `{what}` happened {}; without a crash {}", times(self), times(plain)));
            }
        }
        if self.answer != plain.answer {
            differences.push(format!("the scenario gave {}; without a crash {}", self.answer, plain.answer));
        }
        differences
    }
}

impl InstanceEnd {
    async fn of(
        conn: &mut Conn<'_>,
        InstanceView { row, call, .. }: InstanceView,
        engine: &Engine,
        ignoring: &[Ignoring<'_>],
    ) -> Result<InstanceEnd, Error> {
        let inbox = overview::inbox(conn, row.id).await?;
        let mut timers: Vec<String> = overview::timers(conn, row.id)
            .await?
            .into_iter()
            .map(|timer| format!("`{}`{}", timer.event, timer.state.map(|state| format!(" of `{state}`")).unwrap_or_default()))
            .collect();
        timers.sort_unstable();
        let record = row.record.as_ref().map(|record| match engine.data_protection.open(&Owner::of(&row).record(), record) {
            Ok(plain) => compared(&plain, ignoring),
            Err(why) => format!("(cannot be read: {why})"),
        });
        Ok(InstanceEnd {
            status: row.status,
            state: row.state,
            paused: row.paused,
            transitions: row.version,
            record,
            call: call.map(|call| call.verb),
            inbox: inbox.into_iter().map(|waiting| waiting.event).collect(),
            timers,
            error: NotCompared(row.error),
        })
    }
}

/// The record as it is compared.
fn compared(record: &[u8], ignoring: &[Ignoring<'_>]) -> String {
    let text = || String::from_utf8_lossy(record).into_owned();
    if ignoring.is_empty() {
        return text();
    }
    let Ok(mut value) = serde_json::from_slice(record) else { return text() };
    ignoring.iter().for_each(|change| change(&mut value));
    value.to_string()
}

impl fmt::Display for InstanceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.as_deref().map_or("at its beginning".to_owned(), |state| format!("in `{state}`"));
        write!(f, "{} {state} after {} transitions", self.status, self.transitions)?;
        if let Some(error) = self.error.0.as_ref().filter(|_| self.status == Status::Error) {
            write!(f, " ({error})")?;
        }
        if self.paused {
            f.write_str(", paused")?;
        }
        self.record.iter().try_for_each(|record| write!(f, ", with the record {record}"))?;
        self.call.iter().try_for_each(|verb| write!(f, ", while `{verb}` is open"))?;
        for (what, list) in [("waits for it", &self.inbox), ("is to come", &self.timers)] {
            if !list.is_empty() {
                write!(f, ", and {} {what}", list.join(", "))?;
            }
        }
        Ok(())
    }
}

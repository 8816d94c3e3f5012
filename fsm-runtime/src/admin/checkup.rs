//! The checks of `fsm doctor`: broken invariants, settings that weaken a guarantee, dead workers, and definitions that lack names.

mod schedules;
mod work;

use std::time::{Duration, SystemTime};

use fsm_core::duration::display;
use fsm_core::time::Timestamp;
use fsm_store::database_facts;
use fsm_store::sessions;

use super::Admin;
use crate::drift;
use crate::error::Error;
use crate::failure::Unreadable;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is wrong.
    Ok,
    /// A guarantee is weakened, or work does not progress.
    Warning,
    /// The database violates a guarantee.
    Error,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The subject of the check, in a word or two.
    pub about: String,
    /// The result as one sentence.
    pub says: String,
}

/// A rejected event is a warning for this time.
const RECENTLY: Duration = Duration::from_secs(24 * 3600);
/// A larger difference between two clocks is reported.
const APART: Duration = Duration::from_secs(1);
/// A database snapshot older than this keeps too many old rows.
const OLD_SNAPSHOT: Duration = Duration::from_secs(3600);
/// The number of newest instances of each status that are examined.
const FEW: u32 = 1000;
/// Overdue attempts and rejected events are counted up to this number.
const MOST: u32 = 10_000;

/// Formats a count that ended at `MOST`.
fn counted(count: u64) -> String {
    if count >= u64::from(MOST) { format!("{MOST} and more") } else { count.to_string() }
}

impl Level {
    /// The name of the severity in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

impl Finding {
    fn new(level: Level, about: &str, says: impl Into<String>) -> Finding {
        Finding { level, about: about.to_owned(), says: says.into() }
    }

    /// A finding that is `Ok` if the guarantee `holds`. Otherwise it is a warning that ends with `instead`.
    fn of(about: &str, says: String, holds: bool, instead: &str) -> Finding {
        if holds { Finding::new(Level::Ok, about, says) } else { Finding::new(Level::Warning, about, format!("{says}: {instead}")) }
    }
}

impl Admin {
    /// Runs all checks that are fast and read no whole table.
    pub async fn checkup(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = self.settings().await?;
        findings.extend(self.clock().await?);
        findings.extend(self.work().await?);
        findings.extend(self.unreadable().await?);
        findings.extend(self.rejections().await?);
        findings.extend(self.full_inboxes_found().await?);
        findings.extend(self.events_for_partitions().await?);
        findings.extend(self.schedules_found().await?);
        findings.extend(self.newest_drift().await?);
        Ok(findings)
    }

    /// Runs the checks of [`checkup`](Admin::checkup), and checks every invariant, the names that all live rows need, and, with SQLite, the
    /// integrity of the file. Reads whole tables and the whole file.
    pub async fn deep_checkup(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = self.settings().await?;
        findings.extend(self.file().await?);
        findings.extend(self.clock().await?);
        findings.extend(self.work().await?);
        findings.extend(self.unreadable().await?);
        findings.extend(self.rejections().await?);
        findings.extend(self.full_inboxes_found().await?);
        findings.extend(self.events_for_partitions().await?);
        findings.extend(self.schedules_found().await?);
        findings.extend(self.drift().await?);
        let report = self.examine().await?;
        if report.is_healthy() {
            findings.push(Finding::new(Level::Ok, "invariants", "every one holds"));
        }
        for broken in report.broken() {
            let (first, others) = (broken.rows.first().cloned().unwrap_or_default(), broken.rows.len().saturating_sub(1) + broken.others);
            let more = if others == 0 { String::new() } else { format!(", and {others} more") };
            findings.push(Finding::new(Level::Error, broken.number, format!("{} does not hold: {first}{more}", broken.says)));
        }
        Ok(findings)
    }

    async fn settings(&self) -> Result<Vec<Finding>, Error> {
        let mut reader = self.engine.store.reader().await?;
        let conn = &mut reader.conn();
        let settings = database_facts::settings(conn).await?;
        let mut findings: Vec<Finding> = settings.iter().map(|(name, value)| setting_finding(name, value)).collect();
        if conn.is_postgres() {
            let now = Timestamp::from(SystemTime::now());
            if let Some(since) = database_facts::oldest_snapshot(conn).await?.filter(|since| now.since(*since) > OLD_SNAPSHOT) {
                let says = format!("a transaction has been open since {since}: old rows are not cleared away, and tables grow");
                findings.push(Finding::new(Level::Warning, "snapshots", says));
            }
        }
        Ok(findings)
    }

    async fn file(&self) -> Result<Vec<Finding>, Error> {
        if self.is_postgres() {
            return Ok(Vec::new());
        }
        let faults = database_facts::file_faults(&mut self.engine.store.reader().await?.conn()).await?;
        let found: Vec<_> = faults.iter().map(|failpoint| Finding::new(Level::Error, "file", failpoint)).collect();
        Ok(if found.is_empty() { vec![Finding::new(Level::Ok, "file", "its pages fit together")] } else { found })
    }

    async fn clock(&self) -> Result<Option<Finding>, Error> {
        let before = SystemTime::now();
        let Some(server) = sessions::server_clock(&mut self.engine.store.reader().await?.conn()).await? else { return Ok(None) };
        let took = before.elapsed().unwrap_or_default();
        let here = Timestamp::from(before) + took / 2;
        let dedicated = server.now.since(here).max(here.since(server.now));
        let says = format!("this machine's is {} from the database's", display(Duration::from_millis(dedicated.as_millis() as u64)));
        Ok(Some(Finding::of("clock", says, dedicated <= APART + took, "logs disagree; what the engine does goes by the database's")))
    }

    /// The newest instances whose last attempt failed because the code that ran it could not read a stored value.
    async fn unreadable(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let name = &known.machine.name;
            let retrying = self.retrying(name, FEW, MOST).await?;
            let in_error = self.failing(name, None, FEW).await?;
            let all = retrying.into_iter().map(|retrying| retrying.failing).chain(in_error);
            let unreadable: Vec<_> = all.filter(|failing| Unreadable::is_text_of(&failing.error)).collect();
            let Some(first) = unreadable.first() else { continue };
            let says = format!(
                "{} instances of `{name}` have a stored value that the code which ran them cannot read, like `{}`: {}",
                unreadable.len(),
                first.key.escape_debug(),
                first.error
            );
            findings.push(Finding::new(Level::Warning, "values", says));
        }
        Ok(findings)
    }

    /// Events that were accepted and later rejected. An event whose sender received the refusal as an error is not counted.
    async fn rejections(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let machine = &known.machine.name;
            let rejected = self.rejected_count(machine, MOST).await?;
            let Some(last_at) = rejected.last_at else { continue };
            let count = counted(rejected.events);
            let says = format!(
                "events that instances of `{machine}` did not take: {count}, the last at {last_at}; `fsm errors --rejected` lists them"
            );
            let level = if self.now().since(last_at) < RECENTLY { Level::Warning } else { Level::Ok };
            findings.push(Finding::new(level, "rejected", says));
        }
        Ok(findings)
    }

    /// States of the newest live instances that the newest definition of their machine lacks.
    async fn newest_drift(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let machine = &known.machine;
            let (counts, _) = self.newest_counts(&machine.name, FEW).await?;
            for (status, state, count) in counts {
                let Some(state) = state.filter(|state| !status.is_ended() && machine.states().all(|known| known != *state)) else {
                    continue;
                };
                let says =
                    format!("the newest definition lacks the state `{state}`, in which {count} instances of \"{}\" are", machine.name);
                findings.push(Finding::new(Level::Warning, "drift", says));
            }
        }
        if findings.is_empty() {
            let says = format!(
                "the states of the newest {FEW} running instances, and of those in error, are in the newest definition of their machine"
            );
            findings.push(Finding::new(Level::Ok, "drift", says));
        }
        Ok(findings)
    }

    /// The names that live rows need and that the newest definition of their machine lacks. A start with that definition is refused.
    async fn drift(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for known in self.machines() {
            let lacking = drift::lacking(&self.engine.store, &known.machine).await?;
            findings.extend(lacking.iter().map(|line| {
                let says = format!("the newest definition lacks what rows need: {line}");
                Finding::new(Level::Warning, "drift", says)
            }));
        }
        if findings.is_empty() {
            findings.push(Finding::new(Level::Ok, "drift", "every instance has its place in the newest definition of its machine"));
        }
        Ok(findings)
    }
}

/// The effect of a setting on the guarantees.
fn setting_finding(name: &str, value: &str) -> Finding {
    let says = format!("{name} is {value}");
    match name {
        "journal_mode" => Finding::of(
            name,
            says,
            matches!(value, "wal" | "memory"),
            "readers and writers wait for one another; a runtime that opens it sets wal",
        ),
        "fsync" | "full_page_writes" => Finding::of(name, says, value == "on", "a power cut can take or damage what was acknowledged"),
        "synchronous_commit" => Finding::of(name, says, value != "off", "a crash of the server can take what was acknowledged last"),
        "in_recovery" if value != "false" => {
            Finding::new(Level::Warning, "standby", "this server is a standby: it can be looked at, and is behind the primary")
        }
        "in_recovery" => Finding::new(Level::Ok, "standby", "this server is the primary"),
        _ => Finding::new(Level::Ok, name, says),
    }
}

//! The SQL statements of the store, by topic: one text if both databases take it, two texts if they differ.
//!
//! A statement for many rows reads them from `w`. On PostgreSQL `w` is made of one array per column, on SQLite of the values themselves.

/// One statement in both dialects.
pub(super) struct Sql {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

const fn same(text: &'static str) -> Sql {
    Sql { sqlite: text, postgres: text }
}

/// One statement for many rows, which it reads from `w`.
pub(super) struct Many {
    /// The columns of `w`: name and PostgreSQL type.
    pub columns: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

const fn many(columns: &'static str, text: &'static str) -> Many {
    Many { columns, sqlite: text, postgres: text }
}

impl Many {
    /// The text for PostgreSQL, with an array for each column.
    pub(super) fn for_postgres(&self) -> String {
        self.among_others(1, "true")
    }

    /// The text for use beside other statements in one query. Its arrays are numbered from `first` on. It applies to the rows for which
    /// `condition` holds, which refers to a row as `u`.
    pub(super) fn among_others(&self, first: usize, condition: &str) -> String {
        let arrays: Vec<_> = self.types().zip(first..).map(|(kind, n)| format!("${n}::{kind}[]")).collect();
        let (names, arrays) = (self.names(), arrays.join(", "));
        let unless = if condition == "true" { String::new() } else { format!(" as u ({names}) where {condition}") };
        format!("with w ({names}) as (select * from unnest({arrays}){unless})\n{}", self.postgres)
    }

    /// The text for SQLite, for one row whose values come in the order of the columns. If the text permits it, the values replace the
    /// columns of `w`, because a table of one row costs more than the rest of the statement.
    pub(super) fn for_sqlite(&self) -> String {
        let text = self.sqlite.trim();
        let places = vec!["?"; self.types().count()].join(", ");
        let all_of_w = text.split_once("select *").and_then(|(before, after)| Some((before, after.trim_start().strip_prefix("from w")?)));
        match (text.split_once("from w\n"), all_of_w) {
            (_, Some((insert, after))) if insert.starts_with("insert") => {
                let after = after.trim_start();
                format!("{insert}values ({places}) {}", after.strip_prefix("where true").unwrap_or(after))
            }
            (Some((before, after)), _) if text.starts_with("update") => self.in_place(&(before.to_owned() + after)),
            (None, _) if !text.contains("from w") => self.in_place(text),
            _ => format!("with w ({}) as (values ({places}))\n{text}", self.names()),
        }
    }

    /// Returns the text with each column of `w` replaced by the number of its parameter.
    fn in_place(&self, text: &str) -> String {
        let mut parts = text.split("w.");
        let mut put = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let name = part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
            let number = self.names().split(", ").position(|column| column == name).expect("a statement names columns of `w`") + 1;
            put.push_str(&format!("?{number}{}", &part[name.len()..]));
        }
        put
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.columns.split(", ").filter_map(|column| column.split(' ').next()).collect();
        names.join(", ")
    }

    fn types(&self) -> impl Iterator<Item = &'static str> {
        self.columns.split(", ").filter_map(|column| column.split(' ').nth(1))
    }
}

/// The columns of an instance and of its newest attempt, as `Row::instance` and `Row::newest` read them.
macro_rules! instance {
    () => {
        "i.instance_id, i.machine, i.key, i.status, i.state, i.paused, i.version, i.record, i.call_id, i.attempt, i.is_open, i.error, \
         i.inbox_head, i.inbox_tail, i.created_at, i.updated_at, i.row_version, i.entered_at, i.verb, i.event, i.from_state, i.to_state, \
         i.attempt_state, i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.retry, i.first_at, i.worker, i.started_at, \
         i.finished_at, i.attempt_error, i.previous, i.snoozes, coalesce(i.waits_for, i.runs_under), \
         i.progress, i.progress_at"
    };
}

/// The columns of an attempt that has ended, as `Row::attempt` reads them.
macro_rules! attempt {
    () => {
        "c.call_id, c.attempt, c.instance_id, c.machine, c.verb, c.event, c.from_state, c.to_state, c.state, c.created_at, c.scheduled_at, \
         c.remaining_attempts, c.backoff, c.retry, c.first_at, c.worker, c.started_at, c.finished_at, c.error, c.previous, c.snoozes"
    };
}

/// The columns of a timer, as `Row::timer` reads them.
macro_rules! timer {
    () => {
        "t.timer_id, t.instance_id, t.state, t.event, t.payload, t.due_at"
    };
}

/// The column that tells if an instance has a timer of its own: of its state, or a wake. Delayed sends do not count.
macro_rules! has_timer {
    () => {
        ", exists (
            select 1
            from fsm_timers t
            where t.instance_id = i.instance_id and (t.state is not null or length(t.payload) = 0)
        )"
    };
}

#[macro_use]
mod chain;
mod claim;
mod drift;
mod invariants;
mod itself;
mod limits;
mod lock;
mod machines;
mod migrate;
mod outbox;
mod overview;
mod pages;
mod prune;
mod schedules;
mod search;
mod session_log;
mod sessions;
mod single_statement;
#[cfg(feature = "testing")]
mod templates;
mod timers;
mod traces;
mod transactions;
mod transfer;
mod view;
mod write;

pub(super) use claim::*;
pub(super) use drift::*;
pub(super) use invariants::*;
pub(super) use itself::*;
pub(super) use limits::*;
pub(super) use lock::*;
pub(super) use machines::*;
pub(super) use migrate::*;
pub(super) use outbox::*;
pub(super) use overview::*;
pub(super) use pages::*;
pub(super) use prune::*;
pub(super) use schedules::*;
pub(super) use search::*;
pub(super) use session_log::*;
pub(super) use sessions::*;
pub(super) use single_statement::*;
#[cfg(feature = "testing")]
pub(crate) use templates::*;
pub(super) use timers::*;
pub(super) use traces::*;
pub(super) use transactions::*;
pub(super) use transfer::*;
pub(super) use view::*;
pub(super) use write::*;

//! The SQL statements of the store, by topic: one text if both databases take it, two texts if they differ.
//!
//! A statement for many rows reads them from `w`. On PostgreSQL `w` is made of one array per column, on SQLite of the values themselves.

/// The columns of an instance and of its newest attempt, as `Row::instance` and `Row::newest` read them.
macro_rules! instance {
    () => {
        "i.instance_id, i.machine, i.key, i.status, i.state, i.paused, i.version, i.record, i.call_id, i.attempt, i.is_open, i.error, \
         i.inbox_head, i.inbox_tail, i.created_at, i.updated_at, i.row_version, i.entered_at, i.verb, i.event, i.from_state, i.to_state, \
         i.attempt_state, i.attempt_created_at, i.scheduled_at, i.remaining_attempts, i.backoff, i.retry, i.first_at, i.worker, i.started_at, \
         i.finished_at, i.attempt_error, i.previous, i.snoozes, coalesce(i.waits_for, i.runs_under), \
         i.progress, i.progress_at, i.priority, i.parent, i.parent_group, i.family, i.family_group, i.fair_by, i.parent_elsewhere"
    };
}

/// The columns of an attempt that has ended, as `Row::attempt` reads them.
macro_rules! attempt {
    () => {
        "c.call_id, c.attempt, c.instance_id, c.machine, c.verb, c.event, c.from_state, c.to_state, c.state, c.created_at, c.scheduled_at, \
         c.remaining_attempts, c.backoff, c.retry, c.first_at, c.worker, c.started_at, c.finished_at, c.error, c.previous, c.snoozes, \
         c.priority"
    };
}

/// The columns of a timer, as `Row::timer` reads them.
macro_rules! timer {
    () => {
        "t.timer_id, t.instance_id, t.state, t.event, t.payload, t.due_at, t.priority"
    };
}

/// The column that is true if an instance has a timer of its own: of its state, or a wake. Delayed sends do not count.
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
#[macro_use]
mod claim;
mod drift;
mod fair;
mod family;
mod invariant;
mod invariants;
mod itself;
mod limit_permits;
mod limit_values;
mod limits;
mod lock;
mod machines;
mod migrate;
mod outbox;
mod overview;
mod pages;
#[cfg(feature = "postgres")]
mod partition_move;
mod partition_outbox;
mod partitions;
#[cfg(feature = "postgres")]
mod postgres;
mod prune;
mod remote_children;
mod schedules;
mod search;
mod session_log;
mod sessions;
#[cfg(feature = "postgres")]
mod single_statement;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
#[cfg(all(feature = "testing", feature = "postgres"))]
mod templates;
#[cfg(feature = "testing")]
mod testing;
mod timers;
mod traces;
mod transactions;
mod transfer;
mod view;
mod write;

pub(super) use claim::*;
pub(super) use drift::*;
pub(super) use fair::*;
pub(super) use family::*;
pub(super) use invariants::*;
pub(super) use itself::*;
pub(super) use limit_permits::*;
pub(super) use limit_values::*;
pub(super) use limits::*;
pub(super) use lock::*;
pub(super) use machines::*;
pub(super) use migrate::*;
pub(super) use outbox::*;
pub(super) use overview::*;
pub(super) use pages::*;
#[cfg(feature = "postgres")]
pub(super) use partition_move::*;
pub(super) use partition_outbox::*;
pub(super) use partitions::*;
#[cfg(feature = "postgres")]
pub(super) use postgres::*;
pub(super) use prune::*;
pub(super) use remote_children::*;
pub(super) use schedules::*;
pub(super) use search::*;
pub(super) use session_log::*;
pub(super) use sessions::*;
#[cfg(feature = "postgres")]
pub(super) use single_statement::*;
#[cfg(feature = "sqlite")]
pub(super) use sqlite::*;
pub(super) use statement::{Many, Sql};
#[cfg(all(feature = "testing", feature = "postgres"))]
pub(super) use templates::*;
#[cfg(feature = "testing")]
pub(super) use testing::*;
pub(super) use timers::*;
pub(super) use traces::*;
pub(super) use transactions::*;
pub(super) use transfer::*;
pub(super) use view::*;
pub(super) use write::*;

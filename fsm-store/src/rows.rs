//! Decoding of rows to values of `fsm-core`.

mod cell;

use std::str::FromStr;

use fsm_core::call::{Attempt, UnknownName};
use fsm_core::changes::{Note, Timer};
use fsm_core::family::{Family, Parent};
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::{Instance, Status};
use fsm_core::outcome::Event;
use fsm_core::priority::Priority;
use fsm_core::retry::{Retry, RetryState};
use fsm_core::time::Timestamp;
use sqlx::Row as _;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgRow;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteRow;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use super::error::{Result, StoreError};
use super::parent_elsewhere::ParentElsewhere;
#[cfg(feature = "sqlite")]
use super::sqlite::thread::Answer;
use cell::Cell;

/// A row of either database.
pub(super) enum Row {
    /// A row of an answer of the SQLite thread, by its index.
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<Answer>, usize),
    #[cfg(feature = "sqlite")]
    UserSqlite(SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(PgRow),
}

/// The number of columns of the instance itself in `instance!`. Those of its newest attempt follow.
const INSTANCE: usize = 18;
/// The columns of the newest attempt in `instance!` end here, and those of the family begin.
const FAMILY: usize = INSTANCE + 21;
/// The number of columns of `instance!`.
pub(super) const WITH_NEWEST: usize = FAMILY + 6;
/// The column of an instance's newest call.
const NEWEST_CALL: usize = 8;
/// The column of an instance's retry policy.
pub(super) const POLICY: usize = INSTANCE + 9;

impl Row {
    /// The value of the column with this index, from 0.
    pub(super) fn get<T: Cell>(&self, column: usize) -> Result<T> {
        Ok(match self {
            #[cfg(feature = "sqlite")]
            Row::Sqlite(answer, row) => {
                answer.get(*row, column).map_err(|error| sqlx::Error::ColumnDecode { index: column.to_string(), source: error.into() })?
            }
            #[cfg(feature = "sqlite")]
            Row::UserSqlite(row) => row.try_get(column)?,
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    /// True for PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Row::Sqlite(..) | Row::UserSqlite(_) => false,
            #[cfg(feature = "postgres")]
            Row::Postgres(_) => true,
        }
    }

    pub(super) fn instance_id(&self, column: usize) -> Result<InstanceId> {
        self.get(column).map(InstanceId)
    }

    pub(super) fn call_id(&self, column: usize) -> Result<CallId> {
        self.get(column).map(CallId)
    }

    pub(super) fn time(&self, column: usize) -> Result<Timestamp> {
        self.get(column).map(Timestamp::from_micros)
    }

    pub(super) fn time_if_any(&self, column: usize) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp::from_micros))
    }

    /// A count, which is never negative.
    pub(super) fn count(&self, column: usize) -> Result<u32> {
        let number: i64 = self.get(column)?;
        u32::try_from(number).map_err(|_| StoreError::Corrupt { what: format!("a count is {number}") })
    }

    pub(super) fn priority(&self, column: usize) -> Result<Priority> {
        self.get(column).map(Priority::of_number)
    }

    /// One of the names of an enum, such as a status.
    pub(super) fn word<T: FromStr<Err = UnknownName>>(&self, column: usize) -> Result<T> {
        self.get::<String>(column)?.parse().map_err(|unknown: UnknownName| StoreError::Corrupt { what: unknown.to_string() })
    }

    /// The instance in the columns of `instance!`, which begin at this index.
    pub(super) fn instance(&self, at: usize) -> Result<Instance> {
        let call: Option<Uuid> = self.get(at + NEWEST_CALL)?;
        let newest = match call {
            Some(call) => Some((CallId(call), self.count(at + 9)?)),
            None => None,
        };
        Ok(Instance {
            id: self.instance_id(at)?,
            machine: self.get(at + 1)?,
            key: self.get(at + 2)?,
            status: self.word(at + 3)?,
            state: self.get(at + 4)?,
            paused: self.get(at + 5)?,
            version: self.get(at + 6)?,
            record: self.get(at + 7)?,
            newest,
            is_open: self.get(at + 10)?,
            error: self.get(at + 11)?,
            inbox_head: self.get(at + 12)?,
            inbox_tail: self.get(at + 13)?,
            created_at: self.time(at + 14)?,
            updated_at: self.time(at + 15)?,
            row_version: self.get(at + 16)?,
            entered_at: self.time_if_any(at + 17)?,
            parent: self.parent(at + FAMILY, at + FAMILY + 5)?,
            family: self.family(at + FAMILY + 2)?,
            fair_by: self.get(at + FAMILY + 4)?,
        })
    }

    /// The parent of a child, in the columns `parent, parent_group`. It may be in another partition.
    fn parent(&self, at: usize, elsewhere: usize) -> Result<Option<Parent>> {
        let Some(id) = self.get::<Option<Uuid>>(at)? else { return Ok(None) };
        let partition = self.parent_elsewhere(elsewhere)?.map(|elsewhere| elsewhere.partition);
        Ok(Some(Parent { id: InstanceId(id), group: self.get(at + 1)?, partition }))
    }

    /// The name of a parent in another partition.
    pub(super) fn parent_elsewhere(&self, column: usize) -> Result<Option<ParentElsewhere>> {
        let Some(text) = self.get::<Option<String>>(column)? else { return Ok(None) };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| StoreError::Corrupt { what: format!("the parent in another partition is {text:?}: {error}") })
    }

    /// The family in the columns `family, family_group`.
    pub(super) fn family(&self, at: usize) -> Result<Family> {
        let (name, group): (Option<String>, Option<i64>) = (self.get(at)?, self.get(at + 1)?);
        let what = || format!("the family is {name:?} with the group {group:?}");
        Family::of(name.as_deref(), group).ok_or_else(|| StoreError::Corrupt { what: what() })
    }

    /// The ids of an instance that cannot be decoded, and of its newest call. An id that cannot be decoded either is nil, so that the row is reported
    /// and affects no other.
    pub(super) fn ids_of_unread(&self) -> (InstanceId, CallId) {
        let instance = self.instance_id(0).unwrap_or(InstanceId(Uuid::nil()));
        (instance, self.call_id(NEWEST_CALL).unwrap_or(CallId(Uuid::nil())))
    }

    /// The newest attempt of this instance. The columns of `instance!` begin at this index.
    pub(super) fn newest(&self, instance: &Instance, at: usize) -> Result<Option<Attempt>> {
        let Some((call, number)) = instance.newest else { return Ok(None) };
        let at = at + INSTANCE;
        Ok(Some(Attempt {
            call,
            number,
            instance: instance.id,
            machine: instance.machine.clone(),
            verb: self.get(at)?,
            event: self.get(at + 1)?,
            from: self.get(at + 2)?,
            to: self.get(at + 3)?,
            state: self.word(at + 4)?,
            held: instance.paused,
            created_at: self.time(at + 5)?,
            scheduled_at: self.time(at + 6)?,
            retry_state: RetryState { snoozes: self.count(at + 16)?, ..self.retry_state(at + 7)? },
            worker: self.get::<Option<Uuid>>(at + 11)?.map(SessionId),
            started_at: self.time_if_any(at + 12)?,
            finished_at: self.time_if_any(at + 13)?,
            error: self.get(at + 14)?,
            previous: self.get::<Option<Uuid>>(at + 15)?.map(CallId),
            priority: self.priority(at + 20)?,
            limit: self.get(at + 17)?,
        }))
    }

    /// The progress of the open attempt, as it is stored, with its time. The columns of `instance!` begin at this index.
    pub(super) fn progress(&self, at: usize) -> Result<Option<(Vec<u8>, Timestamp)>> {
        let at = at + INSTANCE + 18;
        Ok(self.get::<Option<Vec<u8>>>(at)?.zip(self.time_if_any(at + 1)?))
    }

    /// Like `newest`, but `None` if the attempt cannot be decoded and no decision depends on it.
    pub(super) fn newest_if_any(&self, instance: &Instance, at: usize) -> Result<Option<Attempt>> {
        match self.newest(instance, at) {
            Err(_) if !matters(instance) => Ok(None),
            newest => newest,
        }
    }

    /// The newest attempt if a decision depends on it: it is open, or it may be retried by hand.
    pub(super) fn open_or_exhausted(&self, instance: &Instance, at: usize) -> Result<Option<Arc<Attempt>>> {
        Ok(if matters(instance) { self.newest(instance, at)?.map(Arc::new) } else { None })
    }

    /// The attempt in the columns of `attempt!`, which begin at this index.
    pub(super) fn attempt(&self, at: usize) -> Result<Attempt> {
        Ok(Attempt {
            call: self.call_id(at)?,
            number: self.count(at + 1)?,
            instance: self.instance_id(at + 2)?,
            machine: self.get(at + 3)?,
            verb: self.get(at + 4)?,
            event: self.get(at + 5)?,
            from: self.get(at + 6)?,
            to: self.get(at + 7)?,
            state: self.word(at + 8)?,
            held: false,
            created_at: self.time(at + 9)?,
            scheduled_at: self.time(at + 10)?,
            retry_state: RetryState { snoozes: self.count(at + 20)?, ..self.retry_state(at + 11)? },
            worker: self.get::<Option<Uuid>>(at + 15)?.map(SessionId),
            started_at: self.time_if_any(at + 16)?,
            finished_at: self.time_if_any(at + 17)?,
            error: self.get(at + 18)?,
            previous: self.get::<Option<Uuid>>(at + 19)?.map(CallId),
            priority: self.priority(at + 21)?,
            limit: None,
        })
    }

    /// The retry policy in this column, or the reason why it cannot be decoded.
    pub(super) fn policy(&self, column: usize) -> std::result::Result<Option<Retry>, String> {
        let json = self.get::<Option<String>>(column).map_err(|error| error.to_string())?;
        json.map(|json| serde_json::from_str(&json)).transpose().map_err(|error| error.to_string())
    }

    fn retry_state(&self, at: usize) -> Result<RetryState> {
        let remaining = match self.get::<Option<i64>>(at)? {
            Some(_) => Some(self.count(at)?),
            None => None,
        };
        let backoff_us: i64 = self.get(at + 1)?;
        Ok(RetryState {
            // Without a policy, a failed or lost attempt becomes an error that an operator sees. A damaged policy must not block the row.
            policy: self.policy(at + 2).unwrap_or_default(),
            remaining,
            backoff: Duration::from_micros(u64::try_from(backoff_us).unwrap_or(0)),
            first_at: self.time(at + 3)?,
            snoozes: 0,
        })
    }

    /// The timer in the columns of `timer!`, which begin at this index.
    pub(super) fn timer(&self, at: usize) -> Result<Timer> {
        Ok(Timer {
            id: TimerId(self.get(at)?),
            instance: self.instance_id(at + 1)?,
            state: self.get(at + 2)?,
            event: Event { name: self.get(at + 3)?, payload: self.get(at + 4)? },
            due_at: self.time(at + 5)?,
            priority: self.priority(at + 6)?,
        })
    }

    /// The note in the columns `instance_id, at, kind, call_id, detail, actor`.
    pub(super) fn note(&self) -> Result<Note> {
        Ok(Note {
            instance: self.instance_id(0)?,
            at: self.time(1)?,
            kind: self.word(2)?,
            call: self.get::<Option<Uuid>>(3)?.map(CallId),
            detail: self.get(4)?,
            actor: self.get(5)?,
        })
    }
}

/// True if a decision may depend on the newest attempt.
fn matters(instance: &Instance) -> bool {
    instance.is_open || instance.status == Status::Error
}

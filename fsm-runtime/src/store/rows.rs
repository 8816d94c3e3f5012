//! Rows as values of `fsm-core`.

use std::str::FromStr;

use fsm_core::call::{Attempt, UnknownName};
use fsm_core::changes::{Note, Timer};
use fsm_core::ids::{CallId, InstanceId, SessionId, TimerId};
use fsm_core::instance::Instance;
use fsm_core::outcome::Event;
use fsm_core::retry::{Retry, RetryState};
use fsm_core::time::Timestamp;
use rusqlite::types::FromSql;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use super::error::{Result, StoreError};
use super::thread::Answer;

/// A row of either database.
pub(super) enum Row {
    /// One of those that were answered.
    Sqlite(Arc<Answer>, usize),
    UserSqlite(SqliteRow),
    Postgres(PgRow),
}

/// What a column can be read as, whoever answered.
pub(super) trait Cell: FromSql + for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres> {}
impl<T: FromSql + for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>> Cell for T {}

/// The number of columns of `instance!`.
pub(super) const INSTANCE_COLUMNS: usize = 17;
/// The number of columns of `attempt!`.
pub(super) const ATTEMPT_COLUMNS: usize = 22;

impl Row {
    /// The column at this place, from 0.
    pub(super) fn get<T: Cell>(&self, column: usize) -> Result<T> {
        Ok(match self {
            Row::Sqlite(answer, row) => {
                answer.get(*row, column).map_err(|error| sqlx::Error::ColumnDecode { index: column.to_string(), source: error.into() })?
            }
            Row::UserSqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
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

    /// One of a few words.
    pub(super) fn word<T: FromStr<Err = UnknownName>>(&self, column: usize) -> Result<T> {
        self.get::<String>(column)?.parse().map_err(|unknown: UnknownName| StoreError::Corrupt { what: unknown.to_string() })
    }

    /// The columns of `instance!`, from this place on.
    pub(super) fn instance(&self, at: usize) -> Result<Instance> {
        let call: Option<Uuid> = self.get(at + 8)?;
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
            entered_at: self.time_if_any(at + 16)?,
        })
    }

    /// The columns of `attempt!`, from this place on.
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
            held: self.get(at + 9)?,
            created_at: self.time(at + 10)?,
            scheduled_at: self.time(at + 11)?,
            retry_state: RetryState { snoozes: self.count(at + 21)?, ..self.retry_state(at + 12)? },
            worker: self.get::<Option<Uuid>>(at + 16)?.map(SessionId),
            started_at: self.time_if_any(at + 17)?,
            finished_at: self.time_if_any(at + 18)?,
            error: self.get(at + 19)?,
            previous: self.get::<Option<Uuid>>(at + 20)?.map(CallId),
        })
    }

    /// The retry policy in this column, or why it cannot be read.
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
            // Without one, what fails or is lost is an error that an operator sees: a row must not be stuck for its policy.
            policy: self.policy(at + 2).unwrap_or_default(),
            remaining,
            backoff: Duration::from_micros(u64::try_from(backoff_us).unwrap_or(0)),
            first_at: self.time(at + 3)?,
            snoozes: 0,
        })
    }

    /// The columns of `timer!`, from this place on.
    pub(super) fn timer(&self, at: usize) -> Result<Timer> {
        Ok(Timer {
            id: TimerId(self.get(at)?),
            instance: self.instance_id(at + 1)?,
            state: self.get(at + 2)?,
            event: Event { name: self.get(at + 3)?, payload: self.get(at + 4)? },
            due_at: self.time(at + 5)?,
        })
    }

    /// The columns `instance_id, at, kind, call_id, detail`.
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

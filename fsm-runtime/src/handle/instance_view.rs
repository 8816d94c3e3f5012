//! Instances of any machine as they are read: the rows with their open calls. Handles convert them to the machine's types.

use fsm_core::call::Attempt as Row;
use fsm_core::instance::Instance as InstanceRow;

use super::activity::{Activity, OpenCall};
use crate::data_protection::{DataProtection, Owner};
use crate::error::Error;
use crate::store::conn::Conn;
use crate::store::{lock, view as rows};

/// An instance as it was when it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceView {
    /// The instance's row.
    pub row: InstanceRow,
    /// The open call.
    pub call: Option<OpenCall>,
}

impl InstanceView {
    /// Combines the row, its live attempt and the previous one. Errors are decrypted; the record stays encrypted.
    pub(crate) fn new(row: InstanceRow, live: Option<&Row>, before: Option<&Row>, data_protection: &DataProtection) -> InstanceView {
        let mut call = live.map(|live| OpenCall::seen(live, before));
        if let Some(error) = call.as_mut().and_then(|call| call.last_error.as_mut()) {
            *error = data_protection.open_error(Owner::of(&row), error).into_owned();
        }
        InstanceView { row: data_protection.readable(row), call }
    }

    /// The present activity of the instance.
    pub fn activity(&self) -> Activity {
        Activity::of(self.row.status, self.call.as_ref(), self.row.paused, self.row.error.as_deref())
    }
}

/// Every attempt of an instance, oldest first.
pub(crate) async fn calls_of(conn: &mut Conn<'_>, row: &InstanceRow, data_protection: &DataProtection) -> Result<Vec<Row>, Error> {
    let Some((newest, _)) = row.newest else { return Ok(Vec::new()) };
    let mut attempts = rows::calls(conn, newest).await?;
    data_protection.readable_attempts(Owner::of(row), &mut attempts);
    Ok(attempts)
}

/// Combines the rows with their open calls and the errors of the previous attempts.
pub(crate) async fn with_calls(
    conn: &mut Conn<'_>,
    found: Vec<InstanceRow>,
    data_protection: &DataProtection,
) -> Result<Vec<InstanceView>, Error> {
    let live = found.iter().filter(|row| row.is_open).filter_map(|row| row.newest);
    let wanted: Vec<_> = live.flat_map(|(call, number)| [(call, number), (call, number - 1)]).filter(|(_, number)| *number > 0).collect();
    let attempts = if wanted.is_empty() { Vec::new() } else { lock::attempts(conn, &wanted).await? };
    let seen = found.into_iter().map(|row| {
        let newest = row.newest.filter(|_| row.is_open);
        let numbered =
            |number| attempts.iter().find(|attempt| newest.is_some_and(|(call, _)| attempt.call == call) && attempt.number == number);
        let live = newest.and_then(|(_, number)| numbered(number));
        let before = newest.and_then(|(_, number)| numbered(number - 1));
        InstanceView::new(row, live, before, data_protection)
    });
    Ok(seen.collect())
}

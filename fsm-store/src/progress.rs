//! The progress that running attempts show.

use fsm_core::ids::{CallId, InstanceId};
use fsm_core::time::Timestamp;

use super::error::Result;
use super::open::Store;
use super::sql;
use super::values::values;

/// The progress of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The instance.
    pub instance: InstanceId,
    /// The call.
    pub call: CallId,
    /// The number of the attempt.
    pub number: u32,
    /// The value, encrypted if there is a codec.
    pub value: Vec<u8>,
    /// The time at which the verb gave it.
    pub at: Timestamp,
}

impl Store {
    /// Writes the progress of attempts that execute. Returns the places of those that are not written: their attempts have ended, or their rows
    /// are locked.
    pub async fn write_progress(&self, all: &[&Written]) -> Result<Vec<usize>> {
        let mut tx = self.begin().await?;
        let rows: Vec<_> = all
            .iter()
            .map(|one| {
                let Written { instance, call, number, value, at } = one;
                values![instance.0, call.0, i64::from(*number), value.as_slice(), at.as_micros()]
            })
            .collect();
        let keys: Vec<_> = all.iter().map(|one| one.instance).collect();
        let missed = tx.conn().missed(&sql::PROGRESS, rows.into(), &keys, |row| row.instance_id(0)).await?;
        tx.commit().await?;
        Ok(missed)
    }
}

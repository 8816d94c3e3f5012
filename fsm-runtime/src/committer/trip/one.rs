//! The trip of a batch of plain requests: decided without a lock, and written in one trip or not at all.

use std::borrow::Cow;

use fsm_core::changes::Changes;
use fsm_core::decide::inbox::Unread;
use fsm_core::instance::Instance;

use super::{Decided, Trip};
use crate::committer::board::Board;
use crate::committer::request::Request;
use crate::committer::verdict::Verdict;
use crate::store::conn::Conn;
use crate::store::epoch::Epoch;
use crate::store::error::StoreError;
use crate::store::write::{Stamp, Written, fits, payload, write_at_once, write_whole};

/// What was decided before the writer's turn came, and counts if the epoch in which it was seen still lasts then.
pub(crate) struct Ahead {
    pub(crate) epoch: Epoch,
    board: Board,
    decided: Vec<Decided>,
}

impl Trip<'_> {
    /// Reads and decides a batch without a lock, and without a look where it `remembers`, and writes and commits it by one statement of
    /// PostgreSQL's. `None` when that cannot be, somebody else was faster, or what was remembered is not true any more: nothing is written then.
    pub(crate) async fn at_once(
        &self,
        conn: &mut Conn<'_>,
        batch: &[Request],
        remembers: bool,
    ) -> Result<Option<Vec<Verdict>>, StoreError> {
        let mut board = Board::see(conn, batch, self.now, None, remembers).await?;
        let Ok(decided) = self.decide_all(&board, batch) else { return Ok(None) };
        // Nothing that is written guards a refusal, and what stands beside a row may be gone that was there when that was read.
        if decided.iter().any(|decided| matches!(decided.reply, Some(Err(_)))) {
            return Ok(None);
        }
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        if !changes.iter().all(|changes| fits(changes)) {
            return Ok(None);
        }
        let written = written_at_once(&changes);
        let xmin = if changes.is_empty() {
            None
        } else {
            let stamped: Vec<_> = changes.iter().map(|changes| (*changes, board.stamp(changes.instance.id))).collect();
            let Some(xmin) = write_at_once(conn, &stamped).await? else { return Ok(None) };
            Some(xmin)
        };
        let mut verdicts = self.verdicts(&mut board, batch.iter().map(|request| &request.whose), decided, written);
        if let Some(xmin) = xmin {
            stamp(&mut verdicts, |instance| Stamp::Row { xmin, updated_at: instance.updated_at });
        }
        Ok(Some(verdicts))
    }

    /// What a batch comes to, seen in that epoch of a SQLite file before the writer's turn has come. `None` when more has to be read.
    pub(crate) async fn ahead(&self, conn: &mut Conn<'_>, batch: &[Request], epoch: Epoch) -> Result<Option<Ahead>, StoreError> {
        let board = Board::see(conn, batch, self.now, Some(epoch), true).await?;
        Ok(self.decide_all(&board, batch).ok().map(|decided| Ahead { epoch, board, decided }))
    }

    fn decide_all(&self, board: &Board, batch: &[Request]) -> Result<Vec<Decided>, Unread> {
        let mut decided = Vec::with_capacity(batch.len());
        for request in batch {
            decided.push(self.decide(board, request)?);
        }
        Ok(decided)
    }

    /// Writes and commits what was decided ahead, if it needs nothing more from the database. `None` when something is no longer as it was
    /// seen, or the session as certain: nothing is written then.
    pub(crate) async fn commit_ahead(&self, batch: &[Request], ahead: Ahead) -> Result<Option<Vec<Verdict>>, StoreError> {
        let Ahead { epoch, mut board, decided } = ahead;
        let changes: Vec<_> = decided.iter().filter_map(|decided| decided.changes.as_ref()).collect();
        let engine = self.engine;
        if !write_whole(&engine.store, &engine.epochs, epoch, &changes, self.still_may_grant()).await? {
            return Ok(None);
        }
        let written = written_at_once(&changes);
        let mut verdicts = self.verdicts(&mut board, batch.iter().map(|request| &request.whose), decided, written);
        stamp(&mut verdicts, |_| Stamp::Epoch(epoch));
        Ok(Some(verdicts))
    }

    /// Writes what was decided ahead. The transaction is of the same epoch.
    pub(crate) async fn of_ahead(&self, conn: &mut Conn<'_>, batch: &[Request], ahead: Ahead) -> Result<Vec<Verdict>, StoreError> {
        let Ahead { epoch, mut board, decided } = ahead;
        let mut verdicts = self.write(conn, &mut board, batch.iter().map(|request| &request.whose), decided).await?;
        stamp(&mut verdicts, |_| Stamp::Epoch(epoch));
        Ok(verdicts)
    }
}

impl Ahead {
    /// Whether all of it can be written without another look.
    pub(crate) fn fits(&self) -> bool {
        self.decided.iter().filter_map(|decided| decided.changes.as_ref()).all(fits)
    }
}

/// What became of changes that [`fits`] and are all written.
fn written_at_once(changes: &[&Changes]) -> Vec<Written> {
    changes.iter().map(|changes| Written::Done { payload: payload(changes).map(Cow::into_owned) }).collect()
}

/// What will show of each instance that it is still as this commit left it.
fn stamp(verdicts: &mut [Verdict], stamp: impl Fn(&Instance) -> Stamp) {
    for moved in verdicts.iter_mut().flat_map(|verdict| &mut verdict.moved) {
        moved.stamp = Some(stamp(&moved.instance));
    }
}

//! The outbox: events that verbs sent and that wait because the inbox of their receiver is full. Also the cancelling of delayed sends.

use std::collections::{BTreeMap, HashMap, HashSet};

use fsm_core::commit::rows::{InLine, Put, SenderNote, Target, Unsent};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::{Event, fit};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::values;

/// The line of one receiver, with the time of its next delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The receiver's machine.
    pub machine: String,
    /// The receiver's key.
    pub key: String,
    /// The time of the next delivery.
    pub due_at: Timestamp,
}

/// A receiver whose inbox has no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullInbox {
    /// The receiver's key.
    pub key: String,
    /// The time since which its oldest event has waited in the outbox.
    pub since: Timestamp,
    /// The time of the next delivery.
    pub next_at: Timestamp,
    /// The number of events in the outbox, counted up to a limit.
    pub events: u64,
    /// The number of events in its inbox.
    pub inbox_len: u64,
}

/// The receivers among these that have a line.
pub async fn lines(conn: &mut Conn<'_>, receivers: &[Target<'_>]) -> Result<HashSet<(String, String)>> {
    let rows = conn.batch(&sql::OUTBOX_LINES, receivers.iter().map(|to| values![to.machine, to.key]).collect()).await?;
    rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// Adds the events to the outbox, in this order.
pub async fn put(conn: &mut Conn<'_>, events: &[Put<'_>], now: Timestamp) -> Result<()> {
    let rows = events.iter().enumerate().map(|(place, Put { sender, outgoing, due_at })| {
        values![
            place as i64,
            sender.0,
            outgoing.machine.as_str(),
            outgoing.key.as_str(),
            outgoing.id.0,
            outgoing.event.name.as_str(),
            outgoing.event.payload.as_slice(),
            now.as_micros(),
            due_at.map(Timestamp::as_micros),
            outgoing.priority.number(),
        ]
    });
    conn.put(&sql::OUTBOX_PUT, rows.collect()).await
}

/// The first events of a line, at most `limit`.
pub async fn line(conn: &mut Conn<'_>, receiver: Target<'_>, limit: u32) -> Result<Vec<InLine>> {
    let rows = conn.rows(&sql::OUTBOX_LINE, &values![receiver.machine, receiver.key, i64::from(limit)]).await?;
    let read = |row: &Row| {
        Ok(InLine {
            call: row.call_id(0)?,
            event: Event { name: row.get(1)?, payload: row.get(2)? },
            sender: InstanceId(row.get(3)?),
            tries: u32::try_from(row.get::<i64>(4)?).unwrap_or(u32::MAX),
            priority: row.priority(5)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Deletes the events from the outbox. Returns `false` if another process has delivered one of them.
pub async fn take(conn: &mut Conn<'_>, calls: &[CallId]) -> Result<bool> {
    let rows = conn.batch(&sql::OUTBOX_TAKE, calls.iter().map(|call| values![call.0]).collect()).await?;
    Ok(rows.len() == calls.len())
}

/// Sets the time of the next delivery of a line and the number of deliveries in a row that found no room.
pub async fn again(conn: &mut Conn<'_>, receiver: Target<'_>, due_at: Timestamp, tries: u32) -> Result<()> {
    let values = values![receiver.machine, receiver.key, due_at.as_micros(), i64::from(tries)];
    conn.rows(&sql::OUTBOX_AGAIN, &values).await.map(drop)
}

/// At most `limit` lines of each of these machines, by the time of the next delivery.
pub async fn due(conn: &mut Conn<'_>, machines: impl Iterator<Item = &str>, limit: u32) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for machine in machines {
        for row in conn.rows(&sql::OUTBOX_DUE, &values![machine, i64::from(limit)]).await? {
            lines.push(Line { machine: machine.to_owned(), key: row.get(0)?, due_at: row.time(1)? });
        }
    }
    Ok(lines)
}

/// The number of events that wait for room with instances of the machine, counted up to `most`.
pub async fn count(conn: &mut Conn<'_>, machine: &str, most: u32) -> Result<u64> {
    let rows = conn.rows(&sql::OUTBOX_COUNT, &values![machine, i64::from(most)]).await?;
    let count = rows.first().map(|row| row.get::<i64>(0)).transpose()?;
    Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or_default())
}

/// At most `limit` receivers of the machine that have a line. At most `most` events of each are counted.
pub async fn full_inboxes(conn: &mut Conn<'_>, machine: &str, limit: u32, most: u32) -> Result<Vec<FullInbox>> {
    let rows = conn.rows(&sql::OUTBOX_WAITING, &values![machine, i64::from(limit), i64::from(most)]).await?;
    rows.iter().map(full_inbox).collect()
}

/// The full inbox of one receiver; `None` if it has no line.
pub async fn full_inbox_of(conn: &mut Conn<'_>, receiver: Target<'_>, most: u32) -> Result<Option<FullInbox>> {
    let rows = conn.rows(&sql::OUTBOX_WAITING_FOR, &values![receiver.machine, receiver.key, i64::from(most)]).await?;
    rows.first().map(full_inbox).transpose()
}

fn full_inbox(row: &Row) -> Result<FullInbox> {
    let count = |number: i64| u64::try_from(number).unwrap_or_default();
    Ok(FullInbox {
        key: row.get(0)?,
        since: row.time(1)?,
        next_at: row.time(2)?,
        events: count(row.get(3)?),
        inbox_len: count(row.get(4)?),
    })
}

/// Renames the events of a machine that are in the outbox.
pub async fn rename(conn: &mut Conn<'_>, machine: &str, events: &BTreeMap<String, String>) -> Result<()> {
    for (was, becomes) in events {
        conn.rows(&sql::OUTBOX_RENAME, &values![machine, was.as_str(), becomes.as_str()]).await?;
    }
    Ok(())
}

/// Adds notes to the histories of senders. A sender that was deleted gets none.
pub async fn note(conn: &mut Conn<'_>, notes: &[SenderNote], now: Timestamp) -> Result<()> {
    let rows = notes.iter().map(|note| (note, fit(&note.detail))).collect::<Vec<_>>();
    let rows = rows.iter().map(|(note, detail)| values![note.sender.0, now.as_micros(), note.kind.as_str(), note.call.0, detail.as_ref()]);
    conn.put(&sql::NOTE_SENDER, rows.collect()).await
}

/// The machine and the key of each of these instances that exists.
pub async fn names(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<HashMap<InstanceId, (String, String)>> {
    let mut wanted = instances.to_vec();
    wanted.sort();
    wanted.dedup();
    let rows = conn.batch(&sql::NAMES, wanted.iter().map(|instance| values![instance.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, (row.get(1)?, row.get(2)?)))).collect()
}

/// Cancels delayed sends. A send that is missing in the result was delivered, is being delivered, or never existed.
///
/// An instance that exists only because of such a send gets a wake-up, and ends if no other event is to come.
pub async fn unsend(conn: &mut Conn<'_>, sends: &[CallId], now: Timestamp) -> Result<HashMap<CallId, Unsent>> {
    let rows = conn.batch(&sql::UNSEND, sends.iter().map(|send| values![send.0]).collect()).await?;
    let mut gone = Vec::with_capacity(rows.len());
    for row in &rows {
        gone.push((row.call_id(0)?, row.instance_id(1)?, row.get::<String>(2)?));
    }
    let receivers: Vec<_> = gone.iter().map(|(_, receiver, _)| *receiver).collect();
    let names = names(conn, &receivers).await?;
    let none: &[u8] = &[];
    let wakes = gone.iter().map(|(_, receiver, event)| values![Uuid::now_v7(), receiver.0, event.as_str(), now.as_micros(), none]);
    conn.put(&sql::WAKE_UNBEGUN, wakes.collect()).await?;
    let unsent = |receiver: &InstanceId, event: String| Unsent { receiver: names.get(receiver).cloned(), event };
    Ok(gone.into_iter().map(|(call, receiver, event)| (call, unsent(&receiver, event))).collect())
}

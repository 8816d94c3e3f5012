//! The outbox of a partition: events that verbs sent to instances of other partitions, until those partitions have taken them.

use std::collections::HashMap;
use std::time::Duration;

use fsm_core::commit::family_notice::FamilyNotice;
use fsm_core::commit::partition_delivery::{Again, ClaimedLine, Finish, WaitingEvent};
use fsm_core::commit::rows::{SenderNote, Target, ToPartition, Unsent};
use fsm_core::ids::{CallId, InstanceId};
use fsm_core::outcome::{Event, Outgoing};
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::open::Store;
use super::outbox;
use super::remote_children;
use super::rows::Row;
use super::sql;
use super::values::{Value, values};
use super::write::json::json;

/// The wait before a line whose first event cannot be read is tried again.
const UNREADABLE: Duration = Duration::from_secs(60);

/// The events that wait for one partition, without delayed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// The number of the partition.
    pub partition: u32,
    /// The number of events, counted up to a limit.
    pub events: u64,
    /// The time at which the first of the counted ones was sent.
    pub since: Timestamp,
}

/// Adds the events, in this order.
pub async fn put(conn: &mut Conn<'_>, events: &[ToPartition<'_>], now: Timestamp) -> Result<()> {
    let notices = events.iter().map(|event| json(event.notice)).collect::<Result<Vec<_>>>()?;
    let rows = events.iter().zip(&notices).enumerate().map(|(place, (ToPartition { partition, sender, outgoing, .. }, notice))| {
        values![
            place as i64,
            i64::from(*partition),
            sender.0,
            outgoing.machine.as_str(),
            outgoing.key.as_str(),
            outgoing.id.0,
            outgoing.event.name.as_str(),
            outgoing.event.payload.as_slice(),
            now.as_micros(),
            outgoing.deliver_at.map(Timestamp::as_micros),
            outgoing.deliver_at.unwrap_or(now).as_micros(),
            outgoing.priority.number(),
            notice.as_deref(),
        ]
    });
    conn.put(&sql::PARTITION_OUTBOX_PUT, rows.collect()).await
}

/// Adds the event of a moment of a schedule, which no instance sent. If it is refused, [`finish`] records that in the row of the schedule.
pub async fn put_scheduled(
    conn: &mut Conn<'_>,
    (partition, outgoing): (u32, &Outgoing),
    (schedule, moment): (&str, Timestamp),
    now: Timestamp,
) -> Result<()> {
    let sender = InstanceId(Uuid::nil());
    put(conn, &[ToPartition { partition, sender, outgoing, notice: None }], now).await?;
    conn.rows(&sql::PARTITION_OUTBOX_SCHEDULED, &values![outgoing.id.0, schedule, moment.as_micros()]).await.map(drop)
}

/// Returns true if no instance sent the event of the note: a schedule did.
pub fn is_of_schedule(note: &SenderNote) -> bool {
    note.sender.0.is_nil()
}

/// The numbers of the partitions, of this many, for which events for instances of these machines wait, each with the time of the first delivery.
pub async fn targets(conn: &mut Conn<'_>, partitions: u32, machines: &[String]) -> Result<Vec<(u32, Timestamp)>> {
    let rows = conn.rows(&sql::PARTITION_OUTBOX_TARGETS, &values![i64::from(partitions), Value::Texts(machines)]).await?;
    rows.iter().map(|row| Ok((u32::try_from(row.get::<i64>(0)?).unwrap_or(u32::MAX), row.time(1)?))).collect()
}

/// The events that wait for each of this many partitions at `now` and are delivered, or tried again, until `until`. At most `most` are counted for
/// each. Partitions for which none wait are left out.
pub async fn backlog(conn: &mut Conn<'_>, partitions: u32, now: Timestamp, until: Timestamp, most: u32) -> Result<Vec<Backlog>> {
    let values = values![i64::from(partitions), until.as_micros(), now.as_micros(), i64::from(most)];
    let rows = conn.rows(&sql::PARTITION_OUTBOX_WAITING, &values).await?;
    let read = |row: &Row| {
        let partition = u32::try_from(row.get::<i64>(0)?).unwrap_or(u32::MAX);
        Ok(Backlog { partition, events: u64::try_from(row.get::<i64>(1)?).unwrap_or_default(), since: row.time(2)? })
    };
    rows.iter().map(read).collect()
}

/// The receivers in this partition, of these machines, for which events are due. The first `limit` events are read.
pub async fn due(conn: &mut Conn<'_>, partition: u32, machines: &[String], now: Timestamp, limit: u32) -> Result<Vec<(String, String)>> {
    let values = values![i64::from(partition), Value::Texts(machines), now.as_micros(), i64::from(limit)];
    let rows = conn.rows(&sql::PARTITION_OUTBOX_DUE, &values).await?;
    let mut receivers = Vec::with_capacity(rows.len());
    for row in &rows {
        let receiver = (row.get(0)?, row.get(1)?);
        if !receivers.contains(&receiver) {
            receivers.push(receiver);
        }
    }
    Ok(receivers)
}

/// Claims the events for a receiver, at most `limit`, until a time. `None` if another process has them, or if they are to be tried later: events that
/// came after them then wait with them.
///
/// A row that cannot be read ends the line. If it is the first one, the line is postponed, and the error is returned.
pub async fn claim(store: &Store, receiver: Target<'_>, now: Timestamp, until: Timestamp, limit: u32) -> Result<Option<ClaimedLine>> {
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    let Target { machine, key } = receiver;
    let rows = conn.rows(&sql::PARTITION_OUTBOX_LINE, &values![machine, key, now.as_micros(), i64::from(limit)]).await?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        match waiting(row) {
            Ok(event) => events.push(event),
            Err(error) if events.is_empty() => {
                postpone(&mut conn, receiver, now, Again { due_at: now + UNREADABLE, tries: 0 }).await?;
                return tx.commit().await.and(Err(error));
            }
            Err(_) => break,
        }
    }
    // An event that waits, or that another process has, holds all others back.
    if let Some(held) = events.iter().find(|event| event.due_at > now) {
        // Locks it, so that no claim of it ends meanwhile.
        if has(&mut conn, held.number, held.due_at).await? {
            postpone(&mut conn, receiver, now, Again { due_at: held.due_at, tries: held.tries }).await?;
        }
        return tx.commit().await.map(|()| None);
    }
    // No event is in two claims, and none of a claim can be cancelled.
    let rows = events.iter().map(|event| values![event.number, event.due_at.as_micros(), until.as_micros()]).collect();
    if conn.batch(&sql::PARTITION_OUTBOX_CLAIM, rows).await?.len() != events.len() || events.is_empty() {
        return tx.rollback().await.map(|()| None);
    }
    tx.commit().await?;
    Ok(Some(ClaimedLine { machine: machine.to_owned(), key: key.to_owned(), events, until }))
}

/// Ends a claim: deletes the events that were delivered, adds notes to the histories of their senders or the rows of their schedules, and sets the
/// next delivery of the others.
///
/// Returns `false`, and changes nothing, if the claim had ended and another process has claimed the line.
pub async fn finish(store: &Store, line: &ClaimedLine, finish: &Finish, now: Timestamp) -> Result<bool> {
    let mut tx = store.begin().await?;
    let mut conn = tx.conn();
    let Some(first) = line.events.first() else { return tx.rollback().await.map(|()| false) };
    // Locks the first event and checks that nobody else has claimed it.
    if !has(&mut conn, first.number, line.until).await? {
        return tx.rollback().await.map(|()| false);
    }
    for note in finish.notes.iter().filter(|note| is_of_schedule(note)) {
        conn.rows(&sql::PARTITION_OUTBOX_MOMENT_REFUSED, &values![note.call.0, note.detail.as_str()]).await?;
    }
    conn.put(&sql::PARTITION_OUTBOX_TAKE, finish.delivered.iter().map(|call| values![call.0]).collect()).await?;
    outbox::note(&mut conn, &finish.notes, now).await?;
    for report in &finish.not_started {
        // It has no instance of its own, and the event for its parent is a call that did not exist before.
        let (child, call) = (InstanceId(Uuid::now_v7()), CallId(Uuid::now_v7()));
        remote_children::take(&mut conn, report, child, call).await?;
    }
    postpone(&mut conn, Target { machine: &line.machine, key: &line.key }, now, finish.again).await?;
    tx.commit().await.map(|()| true)
}

/// Cancels delayed events. An event that is missing in the result was delivered, is being delivered, or never existed.
pub async fn unsend(conn: &mut Conn<'_>, sends: &[CallId]) -> Result<HashMap<CallId, Unsent>> {
    let rows = conn.batch(&sql::PARTITION_OUTBOX_UNSEND, sends.iter().map(|send| values![send.0]).collect()).await?;
    rows.iter().map(|row| Ok((row.call_id(0)?, Unsent { receiver: Some((row.get(1)?, row.get(2)?)), event: row.get(3)? }))).collect()
}

/// Locks an event, and returns true if its next delivery is at this time.
async fn has(conn: &mut Conn<'_>, number: i64, due_at: Timestamp) -> Result<bool> {
    let row = values![number, due_at.as_micros(), due_at.as_micros()];
    Ok(!conn.batch(&sql::PARTITION_OUTBOX_CLAIM, std::iter::once(row).collect()).await?.is_empty())
}

async fn postpone(conn: &mut Conn<'_>, receiver: Target<'_>, now: Timestamp, again: Again) -> Result<()> {
    let values = values![receiver.machine, receiver.key, now.as_micros(), again.due_at.as_micros(), i64::from(again.tries)];
    conn.rows(&sql::PARTITION_OUTBOX_POSTPONE, &values).await.map(drop)
}

fn waiting(row: &Row) -> Result<WaitingEvent> {
    Ok(WaitingEvent {
        number: row.get(0)?,
        call: row.call_id(1)?,
        event: Event { name: row.get(2)?, payload: row.get(3)? },
        sender: InstanceId(row.get(4)?),
        due_at: row.time(5)?,
        tries: u32::try_from(row.get::<i64>(6)?).unwrap_or(u32::MAX),
        priority: row.priority(7)?,
        notice: notice(row.get(8)?)?,
    })
}

fn notice(text: Option<String>) -> Result<Option<FamilyNotice>> {
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    read.map_err(|error| StoreError::Corrupt { what: format!("a notice between a parent and a child cannot be read: {error}") })
}

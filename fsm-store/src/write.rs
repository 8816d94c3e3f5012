//! The write path: all changes of instances go through `write`, or in one round trip through `write_single_statement`, `write_in_one` or
//! `write_as_script`.

mod follow;
mod guards;
pub(super) mod json;
#[cfg(feature = "sqlite")]
mod script;
#[cfg(feature = "postgres")]
mod single_statement;

use std::borrow::Cow;
use std::collections::HashMap;

use fsm_core::changes::{Changes, Open, Payload};
use fsm_core::commit::written::Written;
use fsm_core::ids::{CallId, InstanceId};

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::sink::Sink;
use super::values::values;
use super::{encrypted, sql};
use follow::{all_but_inbox, save, timers, traces, waits};
use guards::guards;
#[cfg(feature = "sqlite")]
pub use script::write_as_script;
#[cfg(feature = "postgres")]
pub use single_statement::{write_in_one, write_single_statement};

/// Writes each of the `changes` completely or not at all. A change is `Outdated` if its attempt is not in the expected state, its timer
/// does not exist, or another instance has its key. The instances must be distinct, and existing ones must be locked by this transaction.
pub async fn write(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<Vec<Written>> {
    let outdated = guards(conn, changes).await?;
    let valid: Vec<&Changes> =
        changes.iter().enumerate().filter(|(place, _)| !outdated.contains(place)).map(|(_, change)| *change).collect();
    let payloads = payloads(conn, &valid).await?;
    let sink = &mut Sink::Now(conn);
    all_but_inbox(sink, &valid, &payloads).await?;
    let mut payloads = payloads.into_iter();
    let written = (0..changes.len()).map(|place| match outdated.contains(&place) {
        true => Written::Outdated,
        false => Written::Done { payload: payloads.next().flatten().map(Cow::into_owned) },
    });
    Ok(written.collect())
}

/// Adds events to the inbox of one instance, in this order. Each of the changes must be decided on the one before and
/// [only add](Changes::only_adds), and the instance must be locked by this transaction.
pub async fn write_added(conn: &mut Conn<'_>, changes: &[&Changes]) -> Result<()> {
    let sink = &mut Sink::Now(conn);
    waits(sink, changes).await?;
    timers(sink, changes).await?;
    traces(sink, changes).await?;
    save(sink, &changes[changes.len().saturating_sub(1)..], &[None]).await
}

/// Writes events to the inbox and takes others from it. Returns for each change the payload of the call that it opens.
async fn payloads<'a>(conn: &mut Conn<'_>, changes: &[&'a Changes]) -> Result<Vec<Option<Cow<'a, [u8]>>>> {
    waits(&mut Sink::Now(conn), changes).await?;
    let lost = changes.iter().filter(|change| change.is_forecast_stale).map(|change| &change.instance);
    conn.put(&sql::FORECAST_STALE, lost.map(|instance| values![instance.id.0, instance.inbox_tail - 1]).collect()).await?;

    let takes = changes.iter().filter_map(|change| {
        let taken = change.inbox_taken.as_ref()?;
        Some(values![change.instance.id.0, taken.start, taken.end])
    });
    let mut taken: HashMap<(InstanceId, i64), Vec<u8>> = HashMap::new();
    for row in conn.batch(&sql::INBOX_TAKE, takes.collect()).await? {
        taken.insert((row.instance_id(0)?, row.get(1)?), row.get(2)?);
    }

    let opened = || changes.iter().map(|change| change.open.as_ref().and_then(|open| Some((open, open.payload.as_ref()?))));
    let caught = opened().flatten().filter(|(_, payload)| matches!(payload, Payload::Caught { .. }));
    let mut exhausted: HashMap<InstanceId, Option<Vec<u8>>> = HashMap::new();
    for row in conn.batch(&sql::PAYLOADS, caught.map(|(open, _)| values![open.attempt.instance.0]).collect()).await? {
        exhausted.insert(row.instance_id(0)?, row.get(1)?);
    }
    let again = opened().flatten().filter_map(|(_, payload)| if let Payload::Again(call) = payload { Some(values![call.0]) } else { None });
    let mut ended: HashMap<CallId, Option<Vec<u8>>> = HashMap::new();
    for row in conn.batch(&sql::PAYLOADS_ENDED, again.collect()).await? {
        ended.insert(row.call_id(0)?, row.get(1)?);
    }

    let mut payloads = Vec::with_capacity(changes.len());
    for opened in opened() {
        payloads.push(match opened {
            None => None,
            Some((_, Payload::Bytes(bytes))) => Some(Cow::Borrowed(bytes.as_slice())),
            Some((open, Payload::Inbox(position))) => Some(Cow::Owned(waited(&mut taken, open, *position)?)),
            Some((open, Payload::Caught { call, error, attempts })) => {
                let payload = exhausted.remove(&open.attempt.instance).flatten();
                Some(Cow::Owned(encrypted::catch(*call, payload.as_deref(), error, *attempts)))
            }
            Some((_, Payload::Again(call))) => ended.get(call).cloned().flatten().map(Cow::Owned),
        });
    }
    Ok(payloads)
}

fn waited(taken: &mut HashMap<(InstanceId, i64), Vec<u8>>, open: &Open, position: i64) -> Result<Vec<u8>> {
    let instance = open.attempt.instance;
    let missing = || StoreError::Corrupt { what: format!("no event waits for instance {instance} at position {position}") };
    taken.remove(&(instance, position)).ok_or_else(missing)
}

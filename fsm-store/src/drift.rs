//! The names that live rows need in the code, and the rows that need them.

use std::collections::BTreeMap;

use fsm_core::call::Attempt;
use fsm_core::changes::{Timer, Waiting};
use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql::{self, Among};
use super::values::{Value, values};
use super::write::json::policy_text;

/// The rows of one kind that need a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The kind of the name.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The retry policy of the calls, as it is stored.
    pub retry: Option<String>,
    /// The number of rows.
    pub count: u64,
    /// The time since which the first of them waits, or at which it is due.
    pub since: Timestamp,
}

/// The use of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The state that an instance rests in.
    State,
    /// The verb that an open call runs.
    OpenCall,
    /// The verb that an exhausted call ran, and runs again after a retry by hand.
    ExhaustedCall,
    /// An event in an inbox.
    Waiting,
    /// An event of the outbox that waits for room.
    InOutbox,
    /// A delayed send.
    Delayed,
}

/// Names that a machine no longer has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// States.
    pub states: Vec<String>,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Events.
    pub events: Vec<String>,
    /// Retry policies, as they are stored.
    pub retries: Vec<String>,
}

/// The names that live rows need in the code.
#[derive(Debug, Default)]
pub struct Needs {
    /// The names that could be decoded.
    pub needs: Vec<Need>,
    /// The reasons why other names could not be decoded.
    pub unread: Vec<String>,
}

/// The maximum number of instances that one statement reads.
const AT_ONCE: i64 = 10_000;

/// The names that the calls, the events of the outbox and the delayed events of live instances of `machine` need. Reads all running
/// instances.
pub async fn needs(conn: &mut Conn<'_>, machine: &str) -> Result<Needs> {
    let mut needs = Needs::default();
    let mut after = Some(Uuid::nil());
    while let Some(from) = after {
        after = end_of(conn, &sql::RUNNING, machine, from).await?;
        let values = values![machine, from, after.unwrap_or(Uuid::max())];
        needs.add(Kind::OpenCall, &conn.rows(&sql::VERBS_NEEDED, &values).await?);
    }
    let statements =
        [(Kind::ExhaustedCall, &sql::VERBS_NEEDED_AGAIN), (Kind::InOutbox, &sql::EVENTS_IN_OUTBOX), (Kind::Delayed, &sql::EVENTS_DELAYED)];
    for (kind, statement) in statements {
        needs.add(kind, &conn.rows(statement, &values![machine]).await?);
    }
    Ok(needs)
}

/// The last of the next 10,000 instances of the machine and of this kind after `from`; `None` if there are no more.
async fn end_of(conn: &mut Conn<'_>, among: &Among, machine: &str, from: Uuid) -> Result<Option<Uuid>> {
    let edge = conn.rows(&among.edge_up, &values![machine, from, AT_ONCE - 1]).await?;
    // A second row means that there are more instances.
    if edge.len() < 2 { Ok(None) } else { edge[0].get(0).map(Some) }
}

/// The names of the events in the inboxes of live instances of `machine`, and with `has_states` those of their states. Reads all live
/// instances.
pub async fn needs_of_instances(conn: &mut Conn<'_>, machine: &str, has_states: bool) -> Result<Needs> {
    let mut needs = Needs::default();
    let statuses = [
        (&sql::RUNNING, &sql::STATES_NEEDED, &sql::EVENTS_WAITING),
        (&sql::IN_ERROR, &sql::STATES_NEEDED_IN_ERROR, &sql::EVENTS_WAITING_IN_ERROR),
    ];
    for (among, states, events) in statuses {
        let mut after = Some(Uuid::nil());
        while let Some(from) = after {
            after = end_of(conn, among, machine, from).await?;
            let values = values![machine, from, after.unwrap_or(Uuid::max())];
            if has_states {
                needs.add(Kind::State, &conn.rows(states, &values).await?);
            }
            needs.add(Kind::Waiting, &conn.rows(events, &values).await?);
        }
    }
    Ok(needs)
}

impl Needs {
    /// Adds the rows. A row that cannot be decoded affects no other.
    fn add(&mut self, kind: Kind, rows: &[Row]) {
        for row in rows {
            let need = match read(kind, row) {
                Ok(need) => need,
                Err(why) => {
                    self.unread.push(format!("a name of the kind {kind:?} cannot be read: {why}"));
                    continue;
                }
            };
            let is_same = |known: &&mut Need| known.kind == kind && known.name == need.name && known.retry == need.retry;
            match self.needs.iter_mut().find(is_same) {
                Some(known) => {
                    known.count += need.count;
                    known.since = known.since.min(need.since);
                }
                None => self.needs.push(need),
            }
        }
    }

    /// Adds the others.
    pub fn and(mut self, others: Needs) -> Needs {
        self.needs.extend(others.needs);
        self.unread.extend(others.unread);
        self
    }
}

fn read(kind: Kind, row: &Row) -> Result<Need> {
    let count = u64::try_from(row.get::<i64>(2)?).unwrap_or(0);
    Ok(Need { kind, name: row.get(0)?, retry: row.get(1)?, count, since: row.time(3)? })
}

/// Some instances, and the place of the next ones.
#[derive(Debug, Default)]
pub struct Page {
    /// Their ids and keys.
    pub found: Vec<(InstanceId, String)>,
    /// The instance after which to continue; `None` at the end.
    pub next: Option<InstanceId>,
}

/// At most `limit` instances of `machine` after `after` that have one of these names, among the next 10,000 instances.
pub async fn bearers(conn: &mut Conn<'_>, machine: &str, names: &Names, after: InstanceId, limit: u32) -> Result<Page> {
    let until = window(conn, after).await?;
    let values = [
        Value::from(machine),
        after.0.into(),
        Value::Texts(&names.states),
        Value::Texts(&names.verbs),
        Value::Texts(&names.events),
        Value::Texts(&names.retries),
        i64::from(limit).into(),
        until.map_or(Uuid::max(), |until| until.0).into(),
    ];
    some(conn.rows(&sql::BEARERS, &values).await?, limit, until)
}

/// At most `limit` instances of `machine` after `after` that rest in one of these states without its timer, among the next 10,000
/// instances.
pub async fn timerless(conn: &mut Conn<'_>, machine: &str, states: &[String], after: InstanceId, limit: u32) -> Result<Page> {
    let until = window(conn, after).await?;
    let end = until.map_or(Uuid::max(), |until| until.0);
    let values = [machine.into(), after.0.into(), Value::Texts(states), i64::from(limit).into(), end.into()];
    some(conn.rows(&sql::TIMERLESS, &values).await?, limit, until)
}

/// The last of the next 10,000 instances; `None` if there are fewer.
pub(super) async fn window(conn: &mut Conn<'_>, after: InstanceId) -> Result<Option<InstanceId>> {
    let rows = conn.rows(&sql::WINDOW, &values![after.0, AT_ONCE - 1]).await?;
    rows.first().map(|row| row.instance_id(0)).transpose()
}

pub(super) fn some(rows: Vec<Row>, limit: u32, until: Option<InstanceId>) -> Result<Page> {
    let last = rows.last().filter(|_| rows.len() >= limit as usize).map(|row| row.instance_id(0)).transpose()?;
    // Nothing can be done for an instance whose key cannot be decoded.
    let found = rows.iter().filter_map(|row| Some((row.instance_id(0).ok()?, row.get(1).ok()?))).collect();
    Ok(Page { found, next: last.or(until) })
}

/// Renames the events of the requests of these instances, so that a request with the same dedup id is still recognised under the new name.
pub async fn rename_requests(conn: &mut Conn<'_>, instances: &[InstanceId], events: &BTreeMap<String, String>) -> Result<()> {
    let renamed = instances.iter().flat_map(|id| events.iter().map(|(was, becomes)| values![id.0, was.as_str(), becomes.as_str()]));
    conn.batch(&sql::RENAME_REQUESTS, renamed.collect()).await.map(drop)
}

/// The timers of these instances.
pub async fn timers(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<Vec<Timer>> {
    let rows = conn.batch(&sql::TIMERS_OF, instances.iter().map(|id| values![id.0]).collect()).await?;
    rows.iter().map(|row| row.timer(0)).collect()
}

/// Writes the names that these attempts, waiting events and timers have now. Their instances must be locked by this transaction.
pub async fn rename(conn: &mut Conn<'_>, attempts: &[Attempt], waiting: &[(InstanceId, Waiting)], timers: &[Timer]) -> Result<()> {
    let policies = attempts.iter().map(|attempt| policy_text(&attempt.retry_state)).collect::<Result<Vec<_>>>()?;
    // An attempt is either the newest of its instance, or that of a call that was caught. Each statement changes only its kind.
    for statement in [&sql::RENAME_CALL, &sql::RENAME_CAUGHT] {
        conn.batch(statement, attempts.iter().zip(&policies).map(|(attempt, policy)| renamed(attempt, policy.as_deref())).collect())
            .await?;
    }
    let batch = waiting.iter().map(|(instance, waiting)| values![instance.0, waiting.position, waiting.event.as_str()]);
    conn.batch(&sql::RENAME_WAITING, batch.collect()).await?;
    let batch =
        timers.iter().map(|timer| values![timer.id.0, timer.state.as_deref(), timer.event.name.as_str(), timer.event.payload.as_slice()]);
    conn.batch(&sql::RENAME_TIMER, batch.collect()).await.map(drop)
}

/// A row for `sql::RENAME_CALL`.
fn renamed<'a>(attempt: &'a Attempt, policy: Option<&'a str>) -> [Value<'a>; 8] {
    values![
        attempt.instance.0,
        attempt.call.0,
        i64::from(attempt.number),
        attempt.verb.as_str(),
        attempt.event.as_str(),
        attempt.from.as_deref(),
        attempt.to.as_str(),
        policy,
    ]
}

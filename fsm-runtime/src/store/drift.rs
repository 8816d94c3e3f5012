//! The names that rows need of the code, and the rows that need them.

use std::collections::BTreeMap;

use fsm_core::call::Attempt;
use fsm_core::changes::{Timer, Waiting};
use fsm_core::ids::InstanceId;
use fsm_core::time::Timestamp;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql;
use super::values::{Value, values};
use super::write::policy_text;

/// Rows of one kind that need a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// What it names.
    pub kind: Kind,
    /// The name.
    pub name: String,
    /// The retry policy of the calls, as it is kept.
    pub retry: Option<String>,
    /// How many there are.
    pub count: u64,
    /// Since when the first of them, or when its time comes.
    pub since: Timestamp,
}

/// What a name is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The state that an instance rests in.
    State,
    /// The verb that an open call runs.
    OpenCall,
    /// The verb that an exhausted call ran, and runs again after a retry by hand.
    ExhaustedCall,
    /// An event that waits for its turn.
    Waiting,
    /// An event of the outbox that waits for room.
    InOutbox,
    /// An event that waits for its time.
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
    /// Retry policies, as they are kept.
    pub retries: Vec<String>,
}

/// Every name that the instances of `machine` need which have not ended.
pub async fn needs(conn: &mut Conn<'_>, machine: &str) -> Result<Vec<Need>> {
    let mut needs = Vec::new();
    let statements = [
        (Kind::State, &sql::STATES_NEEDED),
        (Kind::OpenCall, &sql::VERBS_NEEDED),
        (Kind::ExhaustedCall, &sql::VERBS_NEEDED_AGAIN),
        (Kind::Waiting, &sql::EVENTS_WAITING),
        (Kind::InOutbox, &sql::EVENTS_IN_OUTBOX),
        (Kind::Delayed, &sql::EVENTS_DELAYED),
    ];
    for (kind, statement) in statements {
        for row in conn.rows(statement, &values![machine]).await? {
            needs.push(read(kind, &row)?);
        }
    }
    Ok(needs)
}

fn read(kind: Kind, row: &Row) -> Result<Need> {
    let count = u64::try_from(row.get::<i64>(2)?).unwrap_or(0);
    Ok(Need { kind, name: row.get(0)?, retry: row.get(1)?, count, since: row.time(3)? })
}

/// The keys of at most `limit` instances of `machine` after `after` of which something has one of these names.
pub async fn bearers(
    conn: &mut Conn<'_>,
    machine: &str,
    names: &Names,
    after: InstanceId,
    limit: u32,
) -> Result<Vec<(InstanceId, String)>> {
    let values = [
        Value::from(machine),
        after.0.into(),
        Value::Words(&names.states),
        Value::Words(&names.verbs),
        Value::Words(&names.events),
        Value::Words(&names.retries),
        i64::from(limit).into(),
    ];
    let rows = conn.rows(&sql::BEARERS, &values).await?;
    rows.iter().map(|row| Ok((row.instance_id(0)?, row.get(1)?))).collect()
}

/// The requests of these instances that came with an event of `events` came with the one that takes its place: under the same dedup id the
/// same request is still known.
pub async fn rename_requests(conn: &mut Conn<'_>, instances: &[InstanceId], events: &BTreeMap<String, String>) -> Result<()> {
    let renamed = instances.iter().flat_map(|id| events.iter().map(|(was, becomes)| values![id.0, was.as_str(), becomes.as_str()]));
    conn.batch(&sql::RENAME_REQUESTS, renamed.collect()).await.map(drop)
}

/// The timers of these instances.
pub async fn timers(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<Vec<Timer>> {
    let rows = conn.batch(&sql::TIMERS_OF, instances.iter().map(|id| values![id.0]).collect()).await?;
    rows.iter().map(|row| row.timer(0)).collect()
}

/// These attempts, waiting events and timers get the names they have here. Their instances are locked by this transaction.
pub async fn rename(conn: &mut Conn<'_>, attempts: &[Attempt], waiting: &[(InstanceId, Waiting)], timers: &[Timer]) -> Result<()> {
    let policies = attempts.iter().map(|attempt| policy_text(&attempt.retry_state)).collect::<Result<Vec<_>>>()?;
    let batch = attempts.iter().zip(&policies).map(|(attempt, policy)| {
        values![
            attempt.call.0,
            i64::from(attempt.number),
            attempt.verb.as_str(),
            attempt.event.as_str(),
            attempt.from.as_deref(),
            attempt.to.as_str(),
            policy.as_deref(),
        ]
    });
    conn.batch(&sql::RENAME_CALL, batch.collect()).await?;
    let batch = waiting.iter().map(|(instance, waiting)| values![instance.0, waiting.position, waiting.event.as_str()]);
    conn.batch(&sql::RENAME_WAITING, batch.collect()).await?;
    let batch =
        timers.iter().map(|timer| values![timer.id.0, timer.state.as_deref(), timer.event.name.as_str(), timer.event.payload.as_slice()]);
    conn.batch(&sql::RENAME_TIMER, batch.collect()).await.map(drop)
}

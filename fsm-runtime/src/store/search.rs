//! Search fields: the pages of instances that have a value, and the instances whose fields are filled in later.

use std::collections::HashMap;

use fsm_core::ids::InstanceId;
use fsm_core::instance::{Instance, Status};
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::drift::{Page, some, window};
use super::error::Result;
use super::sql;
use super::values::{Value, values};
use super::view::{After, Found, PageFilter, behind_all_with, next_key, page_of};

/// The instances that have a value are counted up to this number, to find the value that the fewest have.
const MOST_COUNTED: i64 = 1000;

/// Writes the search fields of instances that this transaction has locked. Returns the number of fields.
pub async fn put(conn: &mut Conn<'_>, instances: &[(Instance, Vec<SearchField>)]) -> Result<usize> {
    let fields = instances.iter().flat_map(|(instance, fields)| fields.iter().map(move |field| (instance, field)));
    let rows: Vec<_> = fields
        .map(|(instance, field)| {
            values![instance.id.0, field.name.as_str(), instance.machine.as_str(), instance.key.as_str(), field.value.as_str()]
        })
        .collect();
    let count = rows.len();
    conn.put(&sql::SEARCH_PUT, rows.into()).await?;
    Ok(count)
}

/// The search fields of each of these instances.
pub async fn of(conn: &mut Conn<'_>, instances: &[InstanceId]) -> Result<HashMap<InstanceId, Vec<SearchField>>> {
    let mut fields: HashMap<_, Vec<_>> = HashMap::new();
    for row in conn.batch(&sql::SEARCH_OF, instances.iter().map(|id| values![id.0]).collect()).await? {
        fields.entry(row.instance_id(0)?).or_default().push(SearchField { name: row.get(1)?, value: row.get(2)? });
    }
    Ok(fields)
}

/// At most `limit` instances of `machine` after `after` that have a record and have changed since `since`, among the next 10,000 instances.
pub async fn recorded(conn: &mut Conn<'_>, machine: &str, since: Timestamp, after: InstanceId, limit: u32) -> Result<Page> {
    let until = window(conn, after).await?;
    let end = until.map_or(Uuid::max(), |until| until.0);
    let rows = conn.rows(&sql::RECORDED, &values![machine, after.0, since.as_micros(), i64::from(limit), end]).await?;
    some(rows, limit, until)
}

/// A page of instances that have all values of the filter, in the order of their keys.
pub(super) async fn page(conn: &mut Conn<'_>, machine: &str, filter: &PageFilter) -> Result<Found> {
    let prefix = filter.key_prefix.as_deref().unwrap_or_default();
    let (mut from, mut until) = (prefix.to_owned(), behind_all_with(prefix));
    match &filter.after {
        Some(After::Key(key)) if filter.newest_first => until = key.clone(),
        Some(After::Key(key)) => from = next_key(key),
        _ => {}
    }
    let (first, others) = rarest_first(conn, machine, &filter.search).await?;
    let (name, value) = (first.name.as_str(), first.value.as_str());
    let mut edge = None;
    if let Some(most) = filter.look_at_most.filter(|_| filter.is_picky() || filter.status.is_some() || !others.is_empty()) {
        let sql = if filter.newest_first { &sql::FOUND_EDGE_DOWN } else { &sql::FOUND_EDGE_UP };
        let last = i64::from(most.max(1)) - 1;
        let rows = conn.rows(sql, &values![machine, name, value, from.as_str(), until.as_str(), last]).await?;
        edge = if rows.len() < 2 { None } else { Some(rows[0].get::<String>(0)?) };
    }
    match &edge {
        Some(edge) if filter.newest_first => from = edge.clone(),
        Some(edge) => until = next_key(edge),
        None => {}
    }
    let (names, wanted): (Vec<String>, Vec<String>) = others.into_iter().map(|field| (field.name, field.value)).unzip();
    let values = [
        Value::from(machine),
        from.as_str().into(),
        (i64::from(filter.limit) + 1).into(),
        filter.state.as_deref().into(),
        filter.paused.map(i64::from).into(),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
        until.as_str().into(),
        filter.retrying.then_some(1).into(),
        filter.status.map(Status::as_str).into(),
        name.into(),
        value.into(),
        Value::Texts(&names),
        Value::Texts(&wanted),
    ];
    let found = conn.rows(if filter.newest_first { &sql::FOUND_DOWN } else { &sql::FOUND_UP }, &values).await?;
    let (rows, unreadable, last) = page_of(&found, filter.limit, |row| row.get::<String>(2).ok());
    let was_cut = last.is_none() && edge.is_some();
    Ok(Found { rows, unreadable, next: last.or(edge).map(After::Key), was_cut })
}

/// The field whose value the fewest instances have, and the others. One field alone is not counted.
async fn rarest_first(conn: &mut Conn<'_>, machine: &str, fields: &[SearchField]) -> Result<(SearchField, Vec<SearchField>)> {
    let (mut rarest, mut fewest) = (0, i64::MAX);
    for (place, field) in fields.iter().enumerate().filter(|_| fields.len() > 1) {
        let values = values![machine, field.name.as_str(), field.value.as_str(), MOST_COUNTED];
        let count = conn.rows(&sql::SEARCH_COUNT, &values).await?.first().map(|row| row.get(0)).transpose()?.unwrap_or(0);
        if count < fewest {
            (rarest, fewest) = (place, count);
        }
    }
    let mut others = fields.to_vec();
    let first = others.remove(rarest);
    Ok((first, others))
}

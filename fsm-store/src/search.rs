//! Search fields: their values, and the instances whose fields are filled in later.

use std::collections::HashMap;

use fsm_core::ids::InstanceId;
use fsm_core::instance::Instance;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::drift::{Page, some, window};
use super::error::Result;
use super::sql;
use super::values::values;

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

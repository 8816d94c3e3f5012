//! Pages of instances, by conditions.

use fsm_core::ids::InstanceId;
use fsm_core::instance::Status;
use fsm_core::search::SearchField;
use fsm_core::time::Timestamp;
use uuid::Uuid;

use super::conn::Conn;
use super::error::Result;
use super::rows::Row;
use super::sql::{self, Among};
use super::values::{Value, values};
use super::view::WithNewest;

/// The instances that have a value are counted up to this number, to find the value that the fewest have.
const MOST_COUNTED: i64 = 1000;

/// The conditions and the order of a page of instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageFilter {
    /// Only instances with this status.
    pub status: Option<Status>,
    /// Only instances in this state.
    pub state: Option<String>,
    /// Only instances that are paused (`true`) or not paused (`false`).
    pub paused: Option<bool>,
    /// Only instances whose error contains this text, ignoring case. For an instance that is being retried, the error of the previous
    /// attempt.
    pub error: Option<String>,
    /// Only instances whose open attempt follows one that failed or was lost.
    pub retrying: bool,
    /// Only instances that have not changed since this time.
    pub unchanged_since: Option<Timestamp>,
    /// Only instances whose key begins with this text. The page is then in the order of keys.
    pub key_prefix: Option<String>,
    /// Only the children of this instance.
    pub parent: Option<InstanceId>,
    /// Only instances that have these values in their search fields. The page is then in the order of keys.
    pub search: Vec<SearchField>,
    /// Only instances after this one.
    pub after: Option<After>,
    /// The maximum number of instances on the page.
    pub limit: u32,
    /// The instance that was created last comes first; with a key prefix, the last key.
    pub newest_first: bool,
    /// The maximum number of instances of one status that are read for conditions without an index.
    pub look_at_most: Option<u32>,
}

/// The instance that a page continues after.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum After {
    /// In the order of creation.
    Instance(InstanceId),
    /// In the order of keys.
    Key(String),
}

/// An instance that this program cannot read: a value cannot be decoded, or its state is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The key.
    pub key: String,
    /// The reason.
    pub why: String,
}

/// A page of instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The instances that can be decoded.
    pub rows: Vec<WithNewest>,
    /// The instances of the page that cannot be decoded, with their positions in the order of the page.
    pub unreadable: Vec<(After, Unreadable)>,
    /// The instance after which the next page begins, if there are more.
    pub next: Option<After>,
    /// True if the page ends because the limit of instances to read was reached, not because it is full.
    pub was_cut: bool,
}

/// A page of instances of a machine in the order of their ids, which is the order of creation. With a key prefix or a search
/// field, in the order of keys.
pub async fn page(conn: &mut Conn<'_>, machine: &str, filter: &PageFilter) -> Result<Found> {
    if !filter.search.is_empty() {
        return by_search(conn, machine, filter).await;
    }
    if let Some(prefix) = filter.key_prefix.as_ref().filter(|_| filter.parent.is_none()) {
        return by_key(conn, machine, prefix, filter).await;
    }
    if let Some(parent) = filter.parent {
        return of_parent(conn, machine, parent, filter).await;
    }
    let among = among(filter);
    let mut edge = None;
    if let Some(most) = filter.look_at_most.filter(|_| filter.is_picky()) {
        for one in among {
            let there = looked_to(conn, one, machine, filter, most).await?;
            edge = nearer(filter, edge, there);
        }
    }
    let sql = match (among, filter.newest_first) {
        ([one], false) => &one.oldest_first,
        ([one], true) => &one.newest_first,
        ([_, _], false) => &sql::NOT_ENDED_OLDEST_FIRST,
        ([_, _], true) => &sql::NOT_ENDED_NEWEST_FIRST,
        (_, false) => &sql::EVERY_OLDEST_FIRST,
        (_, true) => &sql::EVERY_NEWEST_FIRST,
    };
    let end = edge.map_or(if filter.newest_first { Uuid::nil() } else { Uuid::max() }, |edge| edge.0);
    let values = [
        Value::from(machine),
        filter.beginning().into(),
        // One more than the page holds, to learn whether there are more.
        (i64::from(filter.limit) + 1).into(),
        filter.state.as_deref().into(),
        filter.paused.map(i64::from).into(),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
        end.into(),
        filter.retrying.then_some(1).into(),
    ];
    let found = conn.rows(sql, &values).await?;
    let (rows, unreadable, last) = page_of(&found, filter, by_id);
    let was_cut = last.is_none() && edge.is_some();
    Ok(Found { rows, unreadable, next: last.or(edge.map(After::Instance)), was_cut })
}

/// A page of the children of an instance, in the order of their creation.
async fn of_parent(conn: &mut Conn<'_>, machine: &str, parent: InstanceId, filter: &PageFilter) -> Result<Found> {
    let sql = if filter.newest_first { &sql::CHILDREN_DOWN } else { &sql::CHILDREN_UP };
    let values = [
        Value::from(machine),
        filter.beginning().into(),
        (i64::from(filter.limit) + 1).into(),
        filter.state.as_deref().into(),
        filter.paused.map(i64::from).into(),
        filter.error.as_deref().into(),
        filter.unchanged_since.map(Timestamp::as_micros).into(),
        if filter.newest_first { Uuid::nil() } else { Uuid::max() }.into(),
        filter.retrying.then_some(1).into(),
        filter.status.map(Status::as_str).into(),
        parent.0.into(),
        filter.key_prefix.as_deref().into(),
    ];
    let found = conn.rows(sql, &values).await?;
    let (rows, unreadable, next) = page_of(&found, filter, by_id);
    Ok(Found { rows, unreadable, next, was_cut: false })
}

/// The position of a row in a page in the order of ids.
fn by_id(row: &Row) -> Option<After> {
    row.instance_id(0).ok().map(After::Instance)
}

/// The position of a row in a page in the order of keys.
fn by_its_key(row: &Row) -> Option<After> {
    row.get(2).ok().map(After::Key)
}

/// The rows of the page: those that can be decoded, the others, and the position of the last one if there are more rows. A row whose position
/// cannot be decoded has that of the row before it: the next page cannot begin after it.
fn page_of(
    found: &[Row],
    filter: &PageFilter,
    position: fn(&Row) -> Option<After>,
) -> (Vec<WithNewest>, Vec<(After, Unreadable)>, Option<After>) {
    let limit = filter.limit as usize;
    let is_full = found.len() > limit;
    let (mut rows, mut unreadable, mut last) = (Vec::with_capacity(found.len()), Vec::new(), None);
    for row in found.iter().take(limit) {
        last = position(row).or(last);
        match WithNewest::of(row) {
            Ok(found) => rows.push(found),
            Err(why) => {
                let position = last.clone().unwrap_or_else(|| filter.start());
                unreadable.push((position, Unreadable { key: name_of(row), why: why.to_string() }));
            }
        }
    }
    (rows, unreadable, last.filter(|_| is_full))
}

/// The key of an instance that cannot be decoded, or a text that stands for it.
fn name_of(row: &Row) -> String {
    row.get(2).or_else(|_| row.instance_id(0).map(|id| format!("(instance {id}, whose key cannot be read)"))).unwrap_or_default()
}

/// A page of instances whose keys begin with `prefix`, in the order of their keys.
async fn by_key(conn: &mut Conn<'_>, machine: &str, prefix: &str, filter: &PageFilter) -> Result<Found> {
    let (mut from, mut until) = (prefix.to_owned(), behind_all_with(prefix));
    match &filter.after {
        Some(After::Key(key)) if filter.newest_first => until = key.clone(),
        Some(After::Key(key)) => from = next_key(key),
        _ => {}
    }
    let mut edge = None;
    if let Some(most) = filter.look_at_most.filter(|_| filter.is_picky() || filter.status.is_some()) {
        let sql = if filter.newest_first { &sql::KEY_EDGE_DOWN } else { &sql::KEY_EDGE_UP };
        let rows = conn.rows(sql, &values![machine, from.as_str(), until.as_str(), i64::from(most.max(1)) - 1]).await?;
        edge = if rows.len() < 2 { None } else { Some(rows[0].get::<String>(0)?) };
    }
    match &edge {
        Some(edge) if filter.newest_first => from = edge.clone(),
        Some(edge) => until = next_key(edge),
        None => {}
    }
    let sql = if filter.newest_first { &sql::KEYS_DOWN } else { &sql::KEYS_UP };
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
    ];
    let found = conn.rows(sql, &values).await?;
    let (rows, unreadable, last) = page_of(&found, filter, by_its_key);
    let was_cut = last.is_none() && edge.is_some();
    Ok(Found { rows, unreadable, next: last.or(edge.map(After::Key)), was_cut })
}

/// A page of instances that have all values of the filter, in the order of their keys.
async fn by_search(conn: &mut Conn<'_>, machine: &str, filter: &PageFilter) -> Result<Found> {
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
    let (rows, unreadable, last) = page_of(&found, filter, by_its_key);
    let was_cut = last.is_none() && edge.is_some();
    Ok(Found { rows, unreadable, next: last.or(edge.map(After::Key)), was_cut })
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

/// The lower bound of the keys after `key`. No key contains NUL, so no key is between the two.
fn next_key(key: &str) -> String {
    format!("{key}\u{1}")
}

/// The exclusive upper bound of the keys with this prefix: it is above each of them and not above any key that follows them. Keys are
/// compared by bytes, which gives the order of their characters.
fn behind_all_with(prefix: &str) -> String {
    let mut rest = prefix;
    while let Some(last) = rest.chars().next_back() {
        rest = &rest[..rest.len() - last.len_utf8()];
        if let Some(next) = (last..=char::MAX).nth(1) {
            return format!("{rest}{next}");
        }
    }
    // A key has at most 255 bytes.
    char::MAX.to_string().repeat(64)
}

impl PageFilter {
    /// True if the page is in the order of keys, and otherwise in the order of creation.
    pub fn is_by_key(&self) -> bool {
        !self.search.is_empty() || (self.key_prefix.is_some() && self.parent.is_none())
    }

    /// The position of an instance in the order of the page.
    pub fn position(&self, instance: InstanceId, key: &str) -> After {
        if self.is_by_key() { After::Key(key.to_owned()) } else { After::Instance(instance) }
    }

    /// The position after which the page begins.
    fn start(&self) -> After {
        match &self.after {
            Some(after) => after.clone(),
            None if self.is_by_key() => After::Key(if self.newest_first { behind_all_with("") } else { String::new() }),
            None => After::Instance(InstanceId(self.beginning())),
        }
    }

    /// True if a condition has no index, so that rows may be read and left out.
    fn is_picky(&self) -> bool {
        let is_of_an_index = self.paused == Some(true) && self.status.is_none();
        self.state.is_some()
            || (self.paused.is_some() && !is_of_an_index)
            || self.error.is_some()
            || self.retrying
            || self.unchanged_since.is_some()
    }

    fn beginning(&self) -> Uuid {
        match self.after {
            Some(After::Instance(after)) => after.0,
            _ if self.newest_first => Uuid::max(),
            _ => Uuid::nil(),
        }
    }
}

/// The kinds of instances that can satisfy the filter. Each kind has an index.
fn among(filter: &PageFilter) -> &'static [&'static Among] {
    match filter.status {
        Some(Status::Running) => &[&sql::RUNNING],
        Some(Status::Error) => &[&sql::IN_ERROR],
        Some(Status::Completed) => &[&sql::COMPLETED],
        Some(Status::Cancelled) => &[&sql::CANCELLED],
        None if filter.paused == Some(true) => &[&sql::PAUSED],
        None if filter.retrying => &[&sql::RUNNING],
        // Only running instances and those in error have an error text.
        None if filter.error.is_some() => &[&sql::RUNNING, &sql::IN_ERROR],
        None => &sql::ALL_KINDS,
    }
}

/// The one of the two that comes first in the order of the page.
fn nearer(filter: &PageFilter, one: Option<InstanceId>, other: Option<InstanceId>) -> Option<InstanceId> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if filter.newest_first { one.max(other) } else { one.min(other) }),
        (one, other) => one.or(other),
    }
}

/// The last instance that may be read if there are more than `most`; `None` if there are not.
async fn looked_to(conn: &mut Conn<'_>, among: &Among, machine: &str, filter: &PageFilter, most: u32) -> Result<Option<InstanceId>> {
    let sql = if filter.newest_first { &among.edge_down } else { &among.edge_up };
    let rows = conn.rows(sql, &values![machine, filter.beginning(), i64::from(most.max(1)) - 1]).await?;
    if rows.len() < 2 { Ok(None) } else { rows[0].instance_id(0).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_with_a_prefix_are_a_range() {
        let prefixes = ["2026-", "a", "\u{d7ff}", "a\u{10ffff}", "\u{10ffff}", ""];
        let keys =
            ["2026-", "2026-01", "2026.", "2025", "a", "a\u{1}", "a\u{10ffff}\u{10ffff}", "b", "\u{d7ff}x", "\u{e000}", "\u{10ffff}z"];
        for prefix in prefixes {
            for key in keys {
                let is_between = prefix <= key && *key < *behind_all_with(prefix);
                assert_eq!(is_between, key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }
}

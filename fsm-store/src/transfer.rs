//! Export and import of whole tables: rows are copied unchanged from one database to another.

use std::collections::HashMap;

use uuid::Uuid;

use super::conn::Conn;
use super::error::{Result, StoreError};
use super::rows::Row;
use super::session_log;
use super::sql::{self, Table};
use super::values::{Batch, Value, values};

/// One value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// An id.
    Id(Option<Uuid>),
    /// A number, or a time in microseconds.
    Number(Option<i64>),
    /// A text.
    Text(Option<String>),
    /// Bytes: JSON, or an encrypted value.
    Bytes(Option<Vec<u8>>),
    /// A boolean.
    Flag(bool),
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`Field::Id`].
    Id,
    /// [`Field::Number`].
    Number,
    /// [`Field::Text`].
    Text,
    /// [`Field::Bytes`].
    Bytes,
    /// [`Field::Flag`].
    Flag,
}

/// The number of tables. A table comes after those that it refers to. Tables about processes are left out: they only make sense in one
/// database.
pub const TABLES: usize = sql::TABLES.len();

/// The name of a table, without `fsm_`.
pub fn name(table: usize) -> &'static str {
    sql::TABLES[table].name
}

/// The columns of a table, in order.
pub fn columns(table: usize) -> Vec<(&'static str, Kind)> {
    let kind = |word| match word {
        "uuid" => Kind::Id,
        "bigint" => Kind::Number,
        "bytea" => Kind::Bytes,
        "boolean" => Kind::Flag,
        _ => Kind::Text,
    };
    sql::TABLES[table]
        .insert
        .columns
        .split(", ")
        .filter_map(|column| column.split_once(' '))
        .map(|(name, word)| (name, kind(word)))
        .collect()
}

/// The place of a column among the columns of a table.
pub fn position(table: usize, column: &str) -> Option<usize> {
    let mut columns = sql::TABLES[table].insert.columns.split(", ");
    columns.position(|one| one.split_once(' ').is_some_and(|(name, _)| name == column))
}

/// The position of a reader in a table.
#[derive(Debug, Clone)]
pub struct Place(Vec<Field>);

impl Place {
    /// Before the first row.
    pub fn beginning(table: usize) -> Place {
        let lowest = |word: &&str| match *word {
            "uuid" => Field::Id(Some(Uuid::nil())),
            "bigint" => Field::Number(Some(-1)),
            _ => Field::Text(Some(String::new())),
        };
        Place(sql::TABLES[table].key.iter().map(lowest).collect())
    }
}

/// A page of the rows of a table.
#[derive(Debug, Default)]
pub struct Page {
    /// The rows that could be decoded.
    pub rows: Vec<Vec<Field>>,
    /// The rows that could not be decoded.
    pub unreadable: Vec<Unreadable>,
    /// True on the last page.
    pub is_last: bool,
}

/// A row with a value that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its key. A part that cannot be decoded is null.
    pub key: Vec<Field>,
    /// The reason.
    pub why: String,
}

/// At most `limit` rows of a table after `place`, of one machine or of all. Advances `place`. A row that cannot be decoded affects no
/// other. Returns `Err(Corrupt)` if no key on a full page can be decoded.
pub async fn read(conn: &mut Conn<'_>, table: usize, machine: Option<&str>, place: &mut Place, limit: u32) -> Result<Page> {
    let Table { page, .. } = &sql::TABLES[table];
    let mut values: Vec<Value<'_>> = vec![machine.into(), i64::from(limit).into()];
    values.extend(place.0.iter().map(value));
    let mut found = conn.rows(page, &values).await?;
    let mut read = Page { is_last: found.len() < limit as usize, ..Page::default() };
    let last = found.iter().rposition(|row| key(row, table).iter().all(Option::is_some));
    match last {
        Some(last) => {
            place.0 = key(&found[last], table).into_iter().flatten().collect();
            // The rows after this one are read again with the next page.
            found.truncate(if read.is_last { found.len() } else { last + 1 });
        }
        None if read.is_last => {}
        None => return Err(StoreError::Corrupt { what: format!("{limit} rows of `{}` have no key that can be read", name(table)) }),
    }
    let columns = columns(table);
    for row in &found {
        match columns.iter().enumerate().map(|(at, (_, kind))| field(row, at, *kind)).collect::<Result<Vec<Field>>>() {
            Ok(fields) => read.rows.push(fields),
            Err(why) => {
                let key = key(row, table).into_iter().map(|part| part.unwrap_or(Field::Text(None))).collect();
                read.unreadable.push(Unreadable { key, why: why.to_string() });
            }
        }
    }
    Ok(read)
}

/// The key of a row, which follows its columns. `None` for a part that cannot be decoded.
fn key(row: &Row, table: usize) -> Vec<Option<Field>> {
    let kind = |word: &str| match word {
        "uuid" => Kind::Id,
        "bigint" => Kind::Number,
        _ => Kind::Text,
    };
    let first = columns(table).len();
    sql::TABLES[table].key.iter().enumerate().map(|(n, word)| field(row, first + n, kind(word)).ok()).collect()
}

/// Inserts rows into a table.
pub async fn write(conn: &mut Conn<'_>, table: usize, rows: &[Vec<Field>]) -> Result<()> {
    match columns(table).len() {
        3 => insert::<3>(conn, table, rows).await,
        4 => insert::<4>(conn, table, rows).await,
        5 => insert::<5>(conn, table, rows).await,
        6 => insert::<6>(conn, table, rows).await,
        7 => insert::<7>(conn, table, rows).await,
        8 => insert::<8>(conn, table, rows).await,
        9 => insert::<9>(conn, table, rows).await,
        10 => insert::<10>(conn, table, rows).await,
        13 => insert::<13>(conn, table, rows).await,
        14 => insert::<14>(conn, table, rows).await,
        15 => insert::<15>(conn, table, rows).await,
        24 => insert::<24>(conn, table, rows).await,
        53 => insert::<53>(conn, table, rows).await,
        other => Err(StoreError::Corrupt { what: format!("no table has {other} columns") }),
    }
}

/// Writes the executing attempts among these rows of `instances` to the logs of their sessions. Does nothing for other tables.
pub async fn log(conn: &mut Conn<'_>, table: usize, rows: &[Vec<Field>]) -> Result<()> {
    if name(table) != "instances" {
        return Ok(());
    }
    let at = |wanted: &str| position(table, wanted).expect("an instance has this column");
    let (instance, state, worker) = (at("instance_id"), at("attempt_state"), at("worker"));
    let mut begun: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
    for row in rows.iter().filter(|row| row[state] == Field::Text(Some("executing".to_owned()))) {
        if let (Field::Id(Some(instance)), Field::Id(Some(worker))) = (&row[instance], &row[worker]) {
            begun.entry(*worker).or_default().push(*instance);
        }
    }
    session_log::adopt(conn, begun).await
}

async fn insert<const WIDTH: usize>(conn: &mut Conn<'_>, table: usize, rows: &[Vec<Field>]) -> Result<()> {
    let row = |row: &'_ Vec<Field>| -> Result<()> {
        if row.len() == WIDTH { Ok(()) } else { Err(StoreError::Corrupt { what: format!("a row has {} columns, not {WIDTH}", row.len()) }) }
    };
    rows.iter().try_for_each(row)?;
    let batch: Batch<'_, WIDTH> = rows.iter().map(|row| std::array::from_fn(|at| value(&row[at]))).collect();
    conn.batch(&sql::TABLES[table].insert, batch).await.map(drop)
}

/// An estimate of the number of rows; `None` if the database has no estimate.
pub async fn about(conn: &mut Conn<'_>) -> Result<Option<u64>> {
    let rows = conn.rows(&sql::ROWS_ABOUT, &[]).await?;
    let count = rows.first().map(|row| row.get::<Option<i64>>(0)).transpose()?.flatten();
    Ok(count.and_then(|count| u64::try_from(count).ok()))
}

/// Blocks every process that would migrate or import, until the transaction ends.
pub async fn lock(conn: &mut Conn<'_>) -> Result<()> {
    conn.rows(&sql::MIGRATION_LOCK, &[]).await.map(drop)
}

/// True if the machine has an instance.
pub async fn has_instances(conn: &mut Conn<'_>, machine: &str) -> Result<bool> {
    has_more_instances(conn, machine, 0).await
}

/// True if the machine has more instances than this.
pub async fn has_more_instances(conn: &mut Conn<'_>, machine: &str, number: u64) -> Result<bool> {
    let number = i64::try_from(number).unwrap_or(i64::MAX - 1);
    let rows = conn.rows(&sql::COUNT_UP_TO, &values![machine, number + 1]).await?;
    Ok(rows.first().map(|row| row.get::<i64>(0)).transpose()?.unwrap_or(0) > number)
}

fn value(field: &Field) -> Value<'_> {
    match field {
        Field::Id(id) => Value::Id(*id),
        Field::Number(number) => Value::Number(*number),
        Field::Text(text) => Value::Text(text.as_deref()),
        Field::Bytes(bytes) => Value::Bytes(bytes.as_deref()),
        Field::Flag(flag) => Value::Flag(*flag),
    }
}

fn field(row: &Row, at: usize, kind: Kind) -> Result<Field> {
    Ok(match kind {
        Kind::Id => Field::Id(row.get(at)?),
        Kind::Number => Field::Number(row.get(at)?),
        Kind::Text => Field::Text(row.get(at)?),
        Kind::Bytes => Field::Bytes(row.get(at)?),
        Kind::Flag => Field::Flag(row.get(at)?),
    })
}
